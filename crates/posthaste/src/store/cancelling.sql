-- Running jobs that were cancelled; sent without a transaction block.
SELECT id FROM posthaste.cancelling WHERE posthaste.begin_single_statement()
