SELECT is_in, id, process, process_pid, process_start, process_ns FROM claims WHERE name = ?1 AND ticket = ?2
