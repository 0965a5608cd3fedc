import type { Catalog } from "../../catalog/catalog.ts";
import type { ExposureNote } from "../../catalog/shape.ts";
import { textOf } from "../../base/bytes.ts";
import { isTable } from "../../manifest/table.ts";
import { FINDING_CODES, type FindingCode, type Finding } from "./findings.ts";
import { lintTool } from "./tool-schema.ts";

/** How many tools clients take, as their makers or their users say; more are cut off, refused or warned of. */
export const CLIENT_TOOL_LIMITS: readonly { readonly client: string; readonly most: number }[] = [
  { client: "Cursor", most: 80 },
  { client: "Windsurf", most: 100 },
  { client: "Antigravity", most: 100 },
  { client: "VS Code", most: 128 },
  { client: "OpenAI's API", most: 128 },
];

/** As many tools are named in a finding. */
const MAX_NAMES_IN_FINDING = 5;

/** Looks at what clients would see. @param isRepaired whether the manifest has the plugin that repairs schemas */
export function checkListing(catalog: Catalog, isRepaired: boolean): readonly Finding[] {
  return [
    ...examineNames(catalog.notes),
    ...(isRepaired ? [] : examineSchemas(catalog)),
    ...examineCount(catalog.tools.routes.length),
  ];
}

const REMARKS: Readonly<Partial<Record<ExposureNote["kind"], FindingCode>>> = {
  shortened: "TM901",
  clash: "TM902",
  duplicate: "TM903",
  conformed: "TM904",
  unreadable: "TM905",
  idleOverride: "TM906",
  conflict: "TM907",
};

const REMEDIES: Readonly<Partial<Record<FindingCode, string>>> = {
  TM901: "Give the server a shorter prefix, or tools.rename; models see the name that is listed.",
  TM902: "Give one of the servers a prefix, or rename one of the tools (tools.rename).",
  TM906:
    "Correct the names under tools.describe, tools.meta and tools.annotations, or take them out.",
  TM907: "Clients see what the manifest says; take it out if the server is right.",
  TM903: "Look for a newer version of the server: only the first of them can be called.",
  TM904: "Look for a newer version of the server; toolmux list --all says what was changed.",
  TM905: "Look for a newer version of the server; toolmux list --all says why.",
};

/** Of every list, and not only of those in which there are names. */
const OF_ALL: ReadonlySet<ExposureNote["kind"]> = new Set(["conformed", "unreadable"]);

function examineNames(remarks: readonly ExposureNote[]): readonly Finding[] {
  const named = remarks.filter(
    ({ list, kind }) => list === "tools" || list === "prompts" || OF_ALL.has(kind),
  );
  return gather(
    named.flatMap(({ kind, server, remoteName }) => {
      const code = REMARKS[kind];
      return code === undefined ? [] : [{ server, code, tool: remoteName }];
    }),
    (code) => REMEDIES[code],
  );
}

const REPAIR = 'The plugin schema-repair puts it right: [[plugins]] use = "schema-repair".';

function examineSchemas({ tools }: Catalog): readonly Finding[] {
  const found = tools.routes.flatMap(({ server, remoteName, item }) => {
    const tool = parse(item.original ?? item.bytes);
    const flaws = isTable(tool) ? [...lintTool(tool)] : [];
    return flaws.map((code) => ({ server, code, tool: remoteName }));
  });
  return gather(found, (code) =>
    code === "TM917"
      ? "Hide the tool (tools.deny), or look for a newer version of the server."
      : REPAIR,
  );
}

function parse(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(textOf(bytes, 0, bytes.length));
  } catch {
    return undefined;
  }
}

function examineCount(tools: number): readonly Finding[] {
  const exceeded = CLIENT_TOOL_LIMITS.filter(({ most }) => tools > most);
  if (exceeded.length === 0) return [];
  const list = exceeded.map(({ client, most }) => `${client} (${most})`).join(", ");
  const text = `Clients would see ${tools} tools, more than these take: ${list}.`;
  const advice =
    "Show fewer (tools.allow, tools.deny), or give such a client a part: over HTTP, /mcp?servers=a,b.";
  return [{ code: "TM921", subject: "tools", text, advice }];
}

interface Found {
  readonly server: string;
  readonly code: FindingCode;
  readonly tool: string;
}

/** One finding for all tools of a server that have the same. */
function gather(
  found: readonly Found[],
  advise: (code: FindingCode) => string | undefined,
): readonly Finding[] {
  const groups = new Map<string, Found[]>();
  for (const one of found) {
    const key = `${one.code} ${one.server}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return [...groups.values()].flatMap((each) => {
    const [first] = each;
    if (first === undefined) return [];
    const { code, server: subject } = first;
    const names = each.slice(0, MAX_NAMES_IN_FINDING).map(({ tool }) => `"${tool.slice(0, 80)}"`);
    const more = each.length > MAX_NAMES_IN_FINDING ? ` and ${each.length - MAX_NAMES_IN_FINDING} more` : "";
    const { title } = FINDING_CODES[code];
    const text = `${title.charAt(0).toUpperCase()}${title.slice(1)}: ${names.join(", ")}${more}.`;
    return [{ code, subject, text, advice: advise(code) }];
  });
}
