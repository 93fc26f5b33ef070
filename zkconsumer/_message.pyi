from zkconsumer.message_py import MessageFields as MessageFields
from zkconsumer.message_py import MessageIterator as MessageIterator
from zkconsumer.message_py import MessageRows as MessageRows
