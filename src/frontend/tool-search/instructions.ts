import type { Catalog } from "../../catalog/catalog.ts";
import { firstSentence } from "../../catalog/search/signature.ts";
import type { SeenServer } from "../../views/client-view.ts";

/** Maximum length of the lines about servers together, and of what one line says of its server; in UTF-16 units. */
const MAX_LINES = 4000;
const MAX_ABOUT = 80;

const HOW_TO = {
  search: [
    "Most tools are not listed. To find them: search_tools with a few words about what a tool should do.",
    "To call one: call_tool with its name and arguments. The signatures in search results are usually enough for that.",
    "describe_tools shows full definitions, and the instructions of the servers.",
  ],
  select: [
    "Most tools are not listed. To find them: search_tools with a few words about what a tool should do.",
    "To add tools to the list: select_tools. Then call them like any other tool.",
    "If a selected tool cannot be called by its name yet: call_tool with its name and arguments.",
  ],
} as const;

/**
 * The instructions for a client that searches for its tools: how to do that, and what each server is for. The servers'
 * own instructions are left out, because those of many servers would be longer than the tools.
 * @param servers those that the client sees, in the order of the manifest
 */
export function searchInstructions(
  form: keyof typeof HOW_TO,
  { ownInstructions, instructions }: Catalog,
  servers: readonly SeenServer[],
): string | undefined {
  // Without servers, the instructions may say why there are none.
  if (servers.length === 0) return instructions;
  const own = ownInstructions === undefined ? [] : [ownInstructions];
  return [...own, HOW_TO[form].join("\n"), serverLines(servers)].join("\n\n");
}

function serverLines(servers: readonly SeenServer[]): string {
  const lines: string[] = ["Servers:"];
  let length = 0;
  for (const [at, server] of servers.entries()) {
    const line = lineOf(server);
    if (length + line.length > MAX_LINES) {
      lines.push(`and ${servers.length - at} more`);
      break;
    }
    lines.push(line);
    length += line.length + 1;
  }
  return lines.join("\n");
}

/** `NAME: TITLE`, or the first sentence of the server's instructions instead of the title. */
function lineOf({ spec, listing }: SeenServer): string {
  const about = spec.title ?? firstSentence(listing?.instructions ?? "");
  const line = about.replaceAll(/\s+/g, " ").trim();
  if (line === "") return spec.name;
  const short = line.length <= MAX_ABOUT ? line : `${line.slice(0, MAX_ABOUT - 1).toWellFormed()}…`;
  return `${spec.name}: ${short}`;
}
