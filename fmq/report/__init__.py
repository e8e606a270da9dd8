"""What a journal has done since its oldest record, as numbers and as a page: made of `fmq.table`,
without an engine. It needs the extra `arrow`.
"""
