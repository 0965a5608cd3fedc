import { transportContract } from "../contract/transport.ts";
import { makeMemoryTransportPair } from "../fixtures/message-queue.ts";

transportContract("memoryPair()", makeMemoryTransportPair);
