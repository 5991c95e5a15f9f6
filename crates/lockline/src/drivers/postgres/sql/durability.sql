-- What the server does for what it answers, as it is set at this moment: `0` a power loss may take it back, `1` it is kept,
-- `2` a synchronous standby keeps it, too.
CASE WHEN current_setting('fsync') = 'off' OR current_setting('full_page_writes') = 'off' THEN '0'
    WHEN current_setting('synchronous_standby_names') = '' THEN '1' ELSE '2' END
