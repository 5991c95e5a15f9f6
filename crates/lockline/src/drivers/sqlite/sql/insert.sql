INSERT INTO claims (name, ticket, id, kind, permits, permit_limit, is_in, closed, fixed, lease_us, deadline_us, renewed_us,
                    since_us, entered_us, owner, host, pid, identity, process, process_pid, process_start, process_ns)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8, ?9, ?10, ?10, CASE WHEN ?7 THEN ?10 ELSE 0 END, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
