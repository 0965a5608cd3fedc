import { execFile } from "node:child_process";
import { basename } from "node:path";
import { HubError } from "../../base/errors.ts";
import type { FindingCode, Finding } from "./findings.ts";
import { type ExternalServer, isExternal, type ServerSpec } from "../../manifest/manifest.ts";
import { resolveRemote, type SchemeResolvers } from "../../manifest/resolve.ts";
import { listSchemes, templatePartsOf } from "../../manifest/interpolate.ts";
import type { Secrets } from "../../secrets/secrets.ts";
import type { HostContext } from "../context.ts";
import { resolvePrograms } from "../../operations/check.ts";
import { hintsFor } from "../../operations/hints.ts";

/**
 * Resolvers for the placeholders (`${…}`) of a server's entry. Secrets are looked up. Placeholders of commands and
 * plugins become an empty text, because `toolmux doctor` runs neither commands nor plugins.
 */
export function dryRunSchemes(spec: ExternalServer, secrets: Secrets): SchemeResolvers {
  const assumed = listSchemes(spec).map((scheme) => [scheme, () => Promise.resolve("")] as const);
  return new Map<string, (path: string) => Promise<string>>([
    ...assumed,
    ["cmd", () => Promise.resolve("")],
    ["secret", (name) => secrets.require(name, spec.secretSources)],
  ]);
}

/** Whether a server's entry can be resolved without running a command or plugin. */
export function isResolvable(spec: ExternalServer): boolean {
  return templatePartsOf(spec).every((part) => part.kind !== "scheme" || part.scheme === "secret");
}

/**
 * Checks whether each enabled server could be started, without starting any.
 * @param hidden receives the values that no finding may show
 */
export async function checkServers(
  servers: readonly ServerSpec[],
  secrets: Secrets,
  context: HostContext,
  hidden: Set<string>,
): Promise<readonly Finding[]> {
  const programs = new Map<string, string>();
  const storeFault = await findStoreFault(secrets);
  /** Servers that need a secret while the secret store cannot be used. One finding names them all. */
  const blocked: string[] = [];
  const found = await Promise.all(
    servers.map(async (spec): Promise<readonly Finding[]> => {
      if (!spec.enabled || !isExternal(spec)) return [];
      try {
        if (spec.kind === "remote") {
          await resolveRemote(spec, context.env, context.cwd, dryRunSchemes(spec, secrets), hidden);
        } else {
          const schemes = dryRunSchemes(spec, secrets);
          for (const file of await resolvePrograms(spec, schemes, context, hidden)) {
            if (!programs.has(file)) programs.set(file, spec.name);
          }
        }
        return [];
      } catch (error) {
        if (!(error instanceof HubError)) throw error;
        if (storeFault !== undefined && error.message.includes(storeFault.message)) {
          blocked.push(spec.name);
          return [];
        }
        const code = error.data?.["script"]
          ? "TM206"
          : (FINDING_CODE_OF_ERROR[error.code] ?? "TM205");
        const [advice] = hintsFor(error, spec, context.env);
        return [{ code, subject: spec.name, text: toSentence(error.message), advice }];
      }
    }),
  );
  const versionFindings = await Promise.all(
    [...programs].map(([file, server]) => checkVersion(file, server)),
  );
  const storeFindings =
    storeFault === undefined || blocked.length === 0
      ? []
      : [describeStoreFault(secrets.folder, storeFault, blocked.toSorted())];
  return [...storeFindings, ...found.flat(), ...versionFindings.flat()];
}

/** Tries to read the secret store. @returns the error; undefined if the store can be read, or does not exist */
async function findStoreFault(secrets: Secrets): Promise<HubError | undefined> {
  try {
    await secrets.file.list();
    return undefined;
  } catch (error) {
    if (error instanceof HubError) return error;
    throw error;
  }
}

function describeStoreFault(
  subject: string,
  { message }: HubError,
  servers: readonly string[],
): Finding {
  const names = servers.map((name) => `"${name}"`).join(", ");
  const text = `${toSentence(message)} These servers need secrets from it: ${names}.`;
  return { code: "TM304", subject, servers, text };
}

const FINDING_CODE_OF_ERROR: Readonly<Record<string, FindingCode>> = {
  commandNotFound: "TM201",
  notExecutable: "TM202",
  spawnFailed: "TM204",
  valueMissing: "TM301",
  storeBroken: "TM304",
};

/** Minimum versions of the runtimes for servers made with the official MCP SDKs. */
const MIN_VERSIONS: readonly { program: RegExp; name: string; min: readonly [number, number] }[] = [
  { program: /^node$/, name: "Node.js", min: [18, 0] },
  { program: /^python(?:3(?:\.\d+)?)?$/, name: "Python", min: [3, 10] },
];
const VERSION_TIMEOUT = 3000;

async function checkVersion(file: string, server: string): Promise<readonly Finding[]> {
  const rule = MIN_VERSIONS.find(({ program }) => program.test(basename(file)));
  if (rule === undefined) return [];
  const output = await new Promise<string>((resolveOutput) => {
    execFile(file, ["--version"], { timeout: VERSION_TIMEOUT }, (_, stdout) =>
      resolveOutput(stdout),
    );
  });
  const [, major, minor] = /(?<!\d)(\d+)\.(\d+)/.exec(output) ?? [];
  if (major === undefined) return [];
  const [first, second] = rule.min;
  const isOld = Number(major) < first || (Number(major) === first && Number(minor ?? 0) < second);
  if (!isOld) return [];
  const minText = second === 0 ? `${first}` : `${first}.${second}`;
  const text = `It runs on ${rule.name} ${major}.${minor ?? 0} (${file}). Most servers need ${minText} or later.`;
  return [
    { code: "TM203", subject: server, text, advice: `Install ${rule.name} ${minText} or later.` },
  ];
}

export function toSentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
