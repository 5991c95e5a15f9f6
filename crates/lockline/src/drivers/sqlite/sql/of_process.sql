SELECT name, ticket, id FROM claims WHERE process = ?1
