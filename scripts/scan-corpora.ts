/**
 * Holds the scan of definitions to public corpora: those of attacks, and those of real tools. They are fetched, kept
 * with their licences in dist/corpora, and not part of this repository; see docs/decisions/scan.md.
 */
import { existsSync } from "node:fs";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as v from "valibot";
import { scanEntry } from "../src/scan/scan.ts";

const KEPT = fileURLToPath(new URL("../dist/corpora", import.meta.url));
/** Where files of public repositories are, by owner, name, commit and path. */
const SOURCE = "https://raw.githubusercontent.com";
const TIMEOUT = 60_000;

interface Corpus {
  readonly name: string;
  readonly repository: string;
  readonly commit: string;
  readonly path: string;
}

const MCPPROXY = {
  repository: "smart-mcp-proxy/mcpproxy-go",
  commit: "20a3e5094ad613cf0b153648b19e13fd6ef1615d",
};
const DETECT: Corpus = {
  ...MCPPROXY,
  name: "detect",
  path: "specs/065-evaluation-foundation/datasets/detect_corpus_v1.json",
};
const SECURITY: Corpus = {
  ...MCPPROXY,
  name: "security",
  path: "specs/065-evaluation-foundation/datasets/security_corpus_v1.json",
};
const LIVE: Corpus = {
  name: "LiveMCPTool",
  repository: "icip-cas/LiveMCPBench",
  commit: "a928e57d1ee7a25579b9a7036030faffff72d15b",
  path: "tools/LiveMCPTool/tools.json",
};
const ZERO: Corpus = {
  name: "MCP-Zero",
  repository: "StacklokLabs/mcp-tef",
  commit: "1553c31835eb0d9503725e77f078999673b3088f",
  path: "tests/data/mcp_tools_cleaned.json",
};

/** Gates: attacks that are found, and the share of real tools with a hard finding. */
const MIN_DETECT_HARD = 26;
const MIN_SECURITY_HARD = 12;
const MIN_SECURITY_ANY = 16;
const MIN_REAL_TOOLS = 3_324;
const MAX_REAL_SHARE = 0.0005;

const toolSchema = v.looseObject({ name: v.string() });
const detectSchema = v.looseObject({
  entries: v.array(
    v.looseObject({
      label: v.string(),
      server: v.optional(v.string()),
      tool: toolSchema,
      peers: v.optional(v.array(v.looseObject({ server: v.string(), tool: toolSchema }))),
    }),
  ),
});
const securitySchema = v.looseObject({
  entries: v.array(v.looseObject({ label: v.string(), description: v.string() })),
});

/** Checks all corpora that can be had. @param from a folder with OWNER/NAME/PATH @returns whether all gates are kept */
export async function checkCorpora(from: string | undefined): Promise<boolean> {
  try {
    return await checkAll(from);
  } catch (error) {
    console.log(`  ✗  ${error instanceof Error ? error.message : String(error)}`);
    return false;
  }
}

async function checkAll(from: string | undefined): Promise<boolean> {
  const verdicts: (boolean | undefined)[] = [
    await checkAttacks(DETECT, from, (value) =>
      v.parse(detectSchema, value).entries.map(({ label, server, tool, peers = [] }) => {
        const foreign = new Set(
          peers.filter((peer) => peer.server !== server).map((peer) => peer.tool.name),
        );
        const isForeignTool = (name: string): boolean => name !== tool.name && foreign.has(name);
        return { isAttack: label === "malicious", findings: scanEntry(tool, { isForeignTool }) };
      }),
    ),
    await checkAttacks(SECURITY, from, (value) =>
      v.parse(securitySchema, value).entries.map(({ label, description }) => ({
        isAttack: label === "malicious",
        findings: scanEntry({ name: "tool", description }),
      })),
    ),
    await checkRealTools(from),
  ];
  return verdicts.every((isKept) => isKept !== false);
}

interface Scanned {
  readonly isAttack: boolean;
  readonly findings: ReturnType<typeof scanEntry>;
}

async function checkAttacks(
  corpus: Corpus,
  from: string | undefined,
  scan: (value: unknown) => readonly Scanned[],
): Promise<boolean | undefined> {
  const value = await readCorpus(corpus, from);
  if (value === undefined) return undefined;
  const scanned = scan(value);
  const attacks = scanned.filter(({ isAttack }) => isAttack);
  const harmless = scanned.filter(({ isAttack }) => !isAttack);
  const hardOf = (of: readonly Scanned[]): number =>
    of.filter(({ findings }) => findings.some(({ hard }) => hard)).length;
  const hard = hardOf(attacks);
  const any = attacks.filter(({ findings }) => findings.length > 0).length;
  const [minHard, minAny] =
    corpus === DETECT ? [MIN_DETECT_HARD, 0] : [MIN_SECURITY_HARD, MIN_SECURITY_ANY];
  const isKept = hard >= minHard && any >= minAny;
  console.log(
    `  ${isKept ? "✓" : "✗"}  ${corpus.name}: of ${attacks.length} attacks ${hard} hard (gate: ${minHard}), ${any} in all (gate: ${minAny}); of ${harmless.length} harmless ones ${hardOf(harmless)} hard`,
  );
  return isKept;
}

async function checkRealTools(from: string | undefined): Promise<boolean | undefined> {
  const values = await Promise.all([LIVE, ZERO].map((corpus) => readCorpus(corpus, from)));
  const tools = values.flatMap((value) => toolsIn(value));
  if (values.includes(undefined)) return undefined;
  const found = tools.flatMap((tool) => {
    const findings = scanEntry(tool);
    return findings.length === 0 ? [] : [{ tool, findings }];
  });
  const hard = found.filter(({ findings }) => findings.some((finding) => finding.hard));
  for (const { tool, findings } of hard)
    console.log(`     ${tool.name}: ${findings.map(({ check }) => check).join(", ")}`);
  const share = hard.length / tools.length;
  const isKept = tools.length >= MIN_REAL_TOOLS && share <= MAX_REAL_SHARE;
  console.log(
    `  ${isKept ? "✓" : "✗"}  real tools: of ${tools.length} (gate: ${MIN_REAL_TOOLS}) ${hard.length} hard (${(share * 100).toFixed(3)} %, gate: ${MAX_REAL_SHARE * 100} %), ${found.length - hard.length} soft`,
  );
  return isKept;
}

/** The tools in the lists `tools` anywhere in a value. */
function toolsIn(value: unknown): readonly v.InferOutput<typeof toolSchema>[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]: [string, unknown]) =>
    key === "tools" && Array.isArray(inner)
      ? inner.filter((tool) => v.is(toolSchema, tool))
      : toolsIn(inner),
  );
}

/** Reads a corpus: from a folder, from what is kept, or from its source. @returns undefined if it is not to be had */
async function readCorpus(
  { name, repository, commit, path }: Corpus,
  from: string | undefined,
): Promise<unknown> {
  const folder = join(KEPT, repository, commit);
  try {
    if (from !== undefined) return JSON.parse(await readFile(join(from, repository, path), "utf8"));
    for (const part of ["LICENSE", path]) {
      const file = join(folder, part);
      if (existsSync(file)) continue;
      const response = await fetch(`${SOURCE}/${repository}/${commit}/${part}`, {
        signal: AbortSignal.timeout(TIMEOUT),
      });
      if (!response.ok) throw new Error(`HTTP status ${response.status}`);
      const text = await response.text();
      // Half a file is not kept.
      if (part === path) JSON.parse(text);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(`${file}.draft`, text);
      await rename(`${file}.draft`, file);
    }
    return JSON.parse(await readFile(join(folder, path), "utf8"));
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    // Who names a folder says that it is there.
    if (from !== undefined) throw new Error(`${name} cannot be read: ${reason}`, { cause: error });
    console.log(`  NOT CHECKED  ${name} of ${repository} (${path}): ${reason}`);
    return undefined;
  }
}
