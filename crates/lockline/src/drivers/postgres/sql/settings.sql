-- Of a session that a pooler gives to many: whether it is as it has to be.
AND current_setting('transaction_isolation') = 'read committed'
AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
