DELETE FROM claims INDEXED BY claims_by_id WHERE id = ?2 AND name = ?1
