DROP TABLE "{prefix}lock";
