SELECT min(deadline_us) FROM claims
