-- Asked of a server before it is adopted: is this the data directory we mean?
SELECT current_setting('data_directory')
