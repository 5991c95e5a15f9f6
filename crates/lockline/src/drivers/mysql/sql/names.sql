SELECT DISTINCT line FROM lockline_claims
