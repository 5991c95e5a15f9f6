SELECT 1 FROM meta WHERE earliest_us <= ?1 OR latest_us > ?2
