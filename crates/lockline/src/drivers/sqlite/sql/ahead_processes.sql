SELECT process, process_pid, process_start, process_ns FROM claims WHERE name = ?1 ORDER BY ticket LIMIT ?2
