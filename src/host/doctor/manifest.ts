import { findPlaintextSecrets, identifySpec } from "../../client-configs/import-plan.ts";
import type { LoadedManifest } from "../../manifest/load.ts";
import { formatPath, type Problem } from "../../manifest/problems.ts";
import type { ServerSpec } from "../../manifest/manifest.ts";
import type { Finding } from "./findings.ts";

/**
 * Checks the manifest as it was loaded.
 * @param isNamed whether the command line names its files; if not, they were searched for
 * @param missing the files that are named in problems and do not exist
 */
export function checkManifest(
  loaded: LoadedManifest,
  isNamed: boolean,
  missing: ReadonlySet<string>,
): readonly Finding[] {
  const untrusted = loaded.untrusted.map((file): Finding => ({
    code: "TM102",
    subject: file,
    text: "This file is ignored: it is not trusted, or it has changed since it was trusted.",
    advice: `If you trust the commands in it: toolmux trust ${file}`,
  }));
  const notes = loaded.notes
    .filter((note) => !loaded.untrusted.some((file) => note.startsWith(`${file} is ignored`)))
    .map((text): Finding => ({ code: "TM103", subject: "manifest", text: `${text}.` }));
  const problems = loaded.problems.map((it) => describeProblem(it, isNamed, missing));
  if (!loaded.ok) return [...untrusted, ...notes, ...problems];
  const { servers, sources } = loaded.manifest;
  return [
    {
      code: "TM002",
      subject: "manifest",
      text: `The manifest comes from: ${sources.join(", ") || "no file"}.`,
    },
    ...untrusted,
    ...notes,
    ...problems,
    ...findUnsupported(servers),
    ...findDuplicates(servers),
    ...servers.flatMap(findSecrets),
  ];
}

function describeProblem(
  { file, position, path, message }: Problem,
  isNamed: boolean,
  missing: ReadonlySet<string>,
): Finding {
  if (missing.has(file)) {
    return isNamed
      ? {
          code: "TM104",
          subject: file,
          text: "This file does not exist.",
          advice: "Correct the path after --config.",
        }
      : {
          code: "TM104",
          subject: file,
          text: "There is no manifest yet.",
          advice:
            "Import the servers of your MCP clients (toolmux import), or add one (toolmux add).",
        };
  }
  const place = position === undefined ? file : `${file}:${position.line}:${position.column}`;
  const whole = [formatPath(path), message].filter((part) => part !== "").join(": ");
  // Unlike in other findings, the first letter is not made a capital, because the text may begin with a key.
  const text = /[.!?]$/.test(whole) ? whole : `${whole}.`;
  return { code: "TM101", subject: place, text, advice: "To see the line: toolmux check" };
}

function findUnsupported(servers: readonly ServerSpec[]): readonly Finding[] {
  return servers.flatMap((spec): readonly Finding[] => {
    if (spec.kind !== "unsupported" || !spec.enabled) return [];
    const advice = 'Remove it from the manifest, or disable it there: "disabled": true';
    return [
      {
        code: "TM105",
        subject: spec.name,
        text: `This server is not used: ${spec.reason}.`,
        advice,
      },
    ];
  });
}

function findDuplicates(servers: readonly ServerSpec[]): readonly Finding[] {
  const first = new Map<string, string>();
  return servers
    .filter(({ enabled }) => enabled)
    .flatMap((spec): readonly Finding[] => {
      const keys = identifySpec(spec);
      const other = keys.map((key) => first.get(key)).find((name) => name !== undefined);
      for (const key of keys) if (!first.has(key)) first.set(key, spec.name);
      if (other === undefined) return [];
      const text = `It is the same server as "${other}": models see all of its tools twice.`;
      return [{ code: "TM106", subject: spec.name, text, advice: "Remove one of the two." }];
    });
}

/** Finds values in a server's entry that look like secrets in plain text. */
export function findSecrets(spec: ServerSpec): readonly Finding[] {
  const plaintextSecrets = plaintextSecretsOf(spec);
  const [first] = plaintextSecrets;
  if (first === undefined) return [];
  const labels = plaintextSecrets.map(({ label }) => label);
  const text = `The manifest contains what looks like a secret in plain text: ${labels.join(", ")}.`;
  const advice = `Store it: toolmux secret set ${first.secretName}, and write \${secret:${first.secretName}} in the config.`;
  return [{ code: "TM107", subject: spec.name, text, advice }];
}

export function plaintextSecretsOf(spec: ServerSpec): ReturnType<typeof findPlaintextSecrets> {
  switch (spec.kind) {
    case "stdio": {
      const { command, args, env, cwd, name } = spec;
      return findPlaintextSecrets({ command, args, env, cwd }, name);
    }
    case "remote": {
      const { url, headers, oauth, name } = spec;
      return findPlaintextSecrets({ url, headers, oauth }, name);
    }
    case "plugin":
    case "fleet":
    case "unsupported":
    case "invalid":
      return [];
  }
}
