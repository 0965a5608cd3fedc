/** The everything server over stdio; with an argument in one era only. */
import process from "node:process";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { createServer } from "./everything.ts";

const era = process.argv[2];
if (era === "legacy") await createServer({ era }).connect(new StdioServerTransport());
else serveStdio(createServer, { legacy: era === "modern" ? "reject" : "serve" });
