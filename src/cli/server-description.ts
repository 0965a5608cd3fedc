import type { RunnableServer, StdioServer } from "../manifest/schema.ts";
import { findSuspectedSecrets, isSecretName } from "../manifest/plaintext-secrets.ts";

const MASK = "•••";

/** What is started, and nothing else. */
export type LaunchSpec = Pick<StdioServer, "command" | "args" | "env">;

/** What a server is: a command, a URL, or a part of a plugin. */
export function describeServer(spec: RunnableServer): string {
  switch (spec.kind) {
    case "stdio":
      return spec.package === undefined
        ? describeCommand(spec)
        : `${spec.package.name}, by ${describeCommand(spec)}`;
    case "remote":
      return describeUrl(spec.url);
    case "plugin":
      return `plugin ${spec.plugin}`;
  }
}

/**
 * The command line of a server, as written: `${…}` are not filled in, and what looks like a secret is masked.
 * Variables that it gets are shown by name only.
 */
export function describeCommand({ command, args, env }: StdioServer | LaunchSpec): string {
  const variables = Object.keys(env).map((name) => `${name}=…`);
  return [...variables, quote(command), ...maskArguments(args).map(quote)].join(" ");
}

/** A URL as written, without what looks like a secret in it. */
export function describeUrl(url: string): string {
  return maskParts(url);
}

function maskArguments(args: readonly string[]): string[] {
  return args.map((arg, i) => {
    const before = args[i - 1] ?? "";
    const isOption = arg.startsWith("-");
    if (!isOption && /^--?[\w-]+$/.test(before) && isSecretName(before)) return maskValue(arg);
    return maskParts(arg);
  });
}

/** A value that is wholly a reference shows nothing: it may stay. */
function maskValue(text: string): string {
  return /^\$\{[^{}]*\}$/.test(text) ? text : MASK;
}

function maskParts(arg: string): string {
  const named = /^(?<name>-{0,2}[\w.-]+\s*[=:]\s*)(?<value>.+)$/su.exec(arg)?.groups;
  if (named !== undefined && isSecretName(named["name"] ?? "")) {
    return `${named["name"]}${maskValue(named["value"] ?? "")}`;
  }
  // Whoever is named in a URL is not shown, whether a password follows or not.
  const masked = arg.replace(/(?<=\/\/)[^/@\s]+(?=@)/g, MASK);
  return findSuspectedSecrets("", masked).reduce(
    (shown, { value }) => shown.replaceAll(value, () => maskValue(value)),
    masked,
  );
}

function quote(word: string): string {
  return /^[\w./:@%+=,•…${}~-]+$/u.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
