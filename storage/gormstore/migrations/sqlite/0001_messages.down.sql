DROP TABLE "{prefix}instances";
DROP TABLE "{prefix}received";
DROP TABLE "{prefix}published";
