from zkconsumer.topology.stores.pages import PagedMap as PagedMap
from zkconsumer.topology.stores.serde_map import SerdeMap as SerdeMap
from zkconsumer.topology.stores.time_map import TimeMap as TimeMap
