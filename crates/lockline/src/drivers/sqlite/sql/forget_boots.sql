DELETE FROM boots WHERE number <= (SELECT max(number) FROM boots) - 16
