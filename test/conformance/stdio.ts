/** The everything server on stdin and stdout, as a hub starts it. */
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { createServer } from "./everything.ts";

await createServer().connect(new StdioServerTransport());
