import { findPlaintextSecrets } from "../../client-configs/clear.ts";
import type { RegistryEntry } from "../../registry/registry.ts";
import {
  serverKeyOf,
  makeManifestEntry,
  type RequiredValue,
  type ManifestEntry,
} from "../../registry/manifest-entry.ts";
import { findServer } from "../../registry/search.ts";
import { HubError } from "../../base/errors.ts";
import { prepareEdit } from "../../manifest/edit/write.ts";
import { runnersOf, parsePackage } from "../../manifest/package.ts";
import { isPrefix, sanitizePrefix } from "../../manifest/prefix.ts";
import { isRunnable } from "../../manifest/schema.ts";
import type { Table } from "../../manifest/table.ts";
import type { Invocation, CommandContext } from "../command.ts";
import { describeServer } from "../server-description.ts";
import { ownConsole } from "../../terminal/console.ts";
import { type CommandLog, openLog } from "../load-manifest.ts";
import { usageError } from "../args.ts";
import { countNoun, formatJson } from "../../terminal/terminal.ts";
import { sanitizeLine, describeFailure } from "../../terminal/report.ts";
import { findInstalledRunner, withInstalledRunner } from "../runner.ts";
import { openRegistries, logRegistryFailures } from "../registries.ts";
import {
  editManifestFile,
  manifestToEdit,
  type Neighbours,
  readNeighbours,
} from "../manifest-file.ts";
import { addOptionSettings, readServerArguments } from "./plan.ts";
import { type TrialResult, tryServer } from "./trial.ts";

/** A server that is to be added. */
interface Wanted {
  readonly key: string;
  readonly entry: Table;
  /** What is to be set before it can start. */
  readonly needs: readonly RequiredValue[];
  readonly optional: readonly string[];
}

/** Puts a server into the manifest, after it has been tried. @returns 3 if it could not be started, and nothing was written */
export async function add(invocation: Invocation, world: CommandContext): Promise<number> {
  const log = openLog(invocation);
  const tell = (text: string): void => {
    if (invocation.json === false) ownConsole.log(sanitizeLine(text));
  };
  const file = await manifestToEdit(invocation, world);
  const neighbours = await readNeighbours(file, invocation, world);
  const wanted = await readWanted(invocation, neighbours, world, log);
  const { key, needs } = wanted;
  const entry = nameTools(addOptionSettings(wanted.entry, invocation), key, neighbours);
  const isNew = !invocation.switches.has("replace");
  const change = { kind: "add", name: key, entry, isNew } as const;
  const { server } = await prepareEdit(file, change);
  if (server === undefined || !isRunnable(server)) {
    throw usageError(
      `${file} is the file of another client: name one of toolmux's own with --file.`,
    );
  }
  tell(`${key}: ${describeServer(await withInstalledRunner(server, world))}`);
  warnClear(entry, key, log);
  const missing = needs.filter(({ name, kind }) => kind === "secret" || !world.env[name]);
  const isTried = !invocation.switches.has("no-try") && missing.length === 0;
  const trial = isTried ? await tryServer(server, world, log) : undefined;
  const isAdded = trial?.kind !== "failed" || invocation.switches.has("force");
  const edit = isAdded ? await editManifestFile(file, change, world) : undefined;
  if (invocation.json !== false)
    ownConsole.log(formatJson(toJson(wanted, file, trial, edit !== undefined)));
  for (const line of describeTrial(trial, key)) tell(line);
  if (trial?.kind === "failed") tellFailure(trial, log);
  if (edit === undefined) {
    log("error", "nothing was written; --force adds it all the same, --no-try without starting it");
    return trial?.kind === "failed" ? trial.cause.properties.exit : 3;
  }
  tell(`${edit.before === undefined ? "made" : "added to"} ${file}`);
  for (const need of needs) tell(describeNeed(need));
  if (wanted.optional.length > 0) tell(`may be given as well: ${wanted.optional.join(", ")}`);
  return 0;
}

/**
 * A key that cannot be a prefix gets one that can.
 * @throws {HubError} usage if the prefix is that of another server, or one that is not in the same file does not allow it
 */
function nameTools(entry: Table, key: string, { separators, servers }: Neighbours): Table {
  const said = entry["prefix"];
  const isGood = (text: string): boolean => separators.every((it) => isPrefix(text, it));
  const sanitized = separators.reduce((text, it) => sanitizePrefix(text, it), key);
  const prefix = typeof said === "string" ? said : isGood(key) ? key : sanitized;
  if (!isGood(prefix)) {
    const marks = [...new Set(separators)].map((it) => `"${it}"`).join(" or ");
    throw usageError(`"${prefix}" cannot be a prefix beside the separator ${marks}: use --prefix.`);
  }
  // Servers of clients' files take what is left.
  const owner = servers.find(
    (spec) =>
      spec.enabled &&
      spec.name !== key &&
      spec.prefix === prefix &&
      prefix !== "" &&
      (spec.kind === "plugin" || ("syntax" in spec && spec.syntax === "toolmux")),
  );
  if (owner !== undefined) {
    throw usageError(
      `The server "${owner.name}" has the prefix "${prefix}" already: use --prefix.`,
    );
  }
  return prefix === key || said !== undefined ? entry : { ...entry, prefix };
}

async function readWanted(
  invocation: Invocation,
  { separators }: Neighbours,
  world: CommandContext,
  log: CommandLog,
): Promise<Wanted> {
  const [name = ""] = invocation.words;
  const said = readServerArguments(invocation);
  const as = invocation.values.get("as")?.at(-1);
  if (said.kind === "entry") {
    return { key: as ?? name, entry: said.entry, needs: [], optional: [] };
  }
  const directories = await openRegistries(invocation, world);
  const { entry: listing, failures } = await findServer(directories, name, world.signal);
  logRegistryFailures(failures, log);
  if (listing === undefined) {
    if (failures.length === directories.length && failures[0] !== undefined)
      throw failures[0].cause;
    const hint = `say what it is (--url, --package, or -- and its command), or look for it: toolmux search ${name}`;
    throw usageError(`No directory has "${name}"; ${hint}`);
  }
  const key = as ?? serverKeyOf(listing.name, separators[0]);
  const recipe = await choose(listing, key, world);
  for (const omission of listing.omissions) log("info", omission);
  return { key, ...recipe };
}

/** What can be started here comes first, then what is elsewhere. @throws {HubError} notSupported */
async function choose(
  listing: RegistryEntry,
  key: string,
  world: CommandContext,
): Promise<ManifestEntry> {
  const ranked = await Promise.all(
    listing.options.map(async (offer) => {
      if (offer.kind === "remote") return { offer, rank: 1 };
      return { offer, rank: (await canRun(offer.name, world)) ? 0 : 2 };
    }),
  );
  for (const { offer } of ranked.toSorted((a, b) => a.rank - b.rank)) {
    const recipe = makeManifestEntry(offer, key);
    if (recipe !== undefined) return recipe;
  }
  const why = listing.omissions.join(" ") || "Its directory does not say how it is started.";
  throw new HubError("notSupported", `${listing.name} cannot be added by its name. ${why}`);
}

/** Whether there is anything in PATH that runs a package. */
async function canRun(name: string, world: CommandContext): Promise<boolean> {
  const runners = runnersOf(parsePackage(name)?.origin ?? "npm");
  return (await findInstalledRunner(runners, world)) !== undefined;
}

function describeTrial(trial: TrialResult | undefined, key: string): readonly string[] {
  switch (trial?.kind) {
    case "connected": {
      const who = [trial.name, trial.version].filter((part) => part !== undefined).join(" ");
      return [`it is there: ${who === "" ? "" : `${who}, `}${countNoun(trial.tools, "tool")}`];
    }
    case "unauthorized":
      return [`it wants an authorization: toolmux auth login ${key}`];
    default:
      return [];
  }
}

function tellFailure(
  { cause, remedies }: TrialResult & { readonly kind: "failed" },
  log: CommandLog,
): void {
  log("error", describeFailure(cause));
  for (const remedy of remedies) log("error", remedy);
}

function describeNeed({ kind, name, description }: RequiredValue): string {
  const about = description === undefined ? "" : `   # ${description}`;
  const what = kind === "secret" ? `toolmux secret set ${name}` : `export ${name}=…`;
  return `to be set before it can start: ${what}${about}`;
}

function warnClear(entry: Table, key: string, log: CommandLog): void {
  for (const { label, secretName: secret } of findPlaintextSecrets(entry, key)) {
    const form = `\${secret:${secret}}`;
    log(
      "warn",
      `${label} looks like a secret, and stands in the file as it is: write ${form} and run toolmux secret set ${secret}, or \${env:NAME}`,
    );
  }
}

function toJson(
  { key, needs, optional }: Wanted,
  file: string,
  trial: TrialResult | undefined,
  added: boolean,
): object {
  const outcome =
    trial?.kind === "failed"
      ? {
          kind: trial.kind,
          code: trial.cause.code,
          message: trial.cause.message,
          remedies: trial.remedies,
        }
      : trial;
  return { server: key, file, added, ...(outcome && { trial: outcome }), needs, optional };
}
