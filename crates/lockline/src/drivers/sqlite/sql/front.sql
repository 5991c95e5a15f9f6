SELECT ticket, kind, permits, permit_limit, is_in, id, process, process_pid, process_start, process_ns FROM claims
WHERE name = ?1 ORDER BY ticket
