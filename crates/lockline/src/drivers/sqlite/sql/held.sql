-- Claims that an older Lockline may still have: not lapsed, and not renewed ahead of this boot's clock.
SELECT count(*) FROM claims WHERE deadline_us > ?1 AND deadline_us - lease_us <= ?1
