SELECT 1 FROM boots WHERE id = ?1
