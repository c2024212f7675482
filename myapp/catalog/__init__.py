"""The catalogue: frameworks and job templates as data, read from `job-template/` and validated by the domain."""

from myapp.catalog.live import LiveCatalog
from myapp.catalog.loader import Catalog, CatalogTemplate, load_catalog
from myapp.catalog.location import catalog_root
from myapp.catalog.source import CatalogProblem

__all__ = ["Catalog", "CatalogProblem", "CatalogTemplate", "LiveCatalog", "catalog_root", "load_catalog"]
