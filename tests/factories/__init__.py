"""Makes what tests start from: contexts, projects, documents, and rows written as the engine writes them."""
