"""Scoring a corpus: texts in shards, each teacher's answers kept apart, one dataset at the end.

``sources`` reads texts, ``arrays`` keeps arrays of scores on disk or in memory, ``scoring`` turns texts into labels,
``processes`` shares the work. :class:`rankcse_st.TeacherScoreDataset` is the way in.
"""
