import type { RunnableServer, StdioServer } from "../manifest/schema.ts";

const MASK = "•••";

/** What an option or variable is called whose value nobody should see. */
const TELLING = /key|token|secret|pass|credential|auth|bearer/i;
/** Long, without a word or a path in it, and with digits: looks like a key whatever it is called. */
const RANDOM = /^(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_+=-]{20,}$/;

/** What a server is: a command, a URL, or a part of a plugin. */
export function describeStart(spec: RunnableServer): string {
  switch (spec.kind) {
    case "stdio":
      return spec.package === undefined
        ? describeCommand(spec)
        : `${spec.package.name}, by ${describeCommand(spec)}`;
    case "remote":
      return maskParts(spec.url);
    case "plugin":
      return `plugin ${spec.plugin}`;
  }
}

/**
 * The command line of a server, as written: `${…}` are not filled in, and what looks like a secret is masked.
 * Variables that it gets are shown by name only.
 */
export function describeCommand({ command, args, env }: StdioServer): string {
  const variables = Object.keys(env).map((name) => `${name}=…`);
  return [...variables, quote(command), ...maskArguments(args).map(quote)].join(" ");
}

function maskArguments(args: readonly string[]): string[] {
  return args.map((arg, i) => {
    const before = args[i - 1] ?? "";
    const isOption = arg.startsWith("-");
    if (!isOption && /^--?[\w-]+$/.test(before) && TELLING.test(before)) return maskValue(arg);
    return maskParts(arg);
  });
}

/** A value that is wholly a reference shows nothing: it may stay. */
function maskValue(text: string): string {
  return /^\$\{[^{}]*\}$/.test(text) ? text : MASK;
}

function maskParts(arg: string): string {
  const named = /^(?<name>-{0,2}[\w.-]+\s*[=:]\s*)(?<value>.+)$/su.exec(arg)?.groups;
  if (named !== undefined && TELLING.test(named["name"] ?? "")) {
    return `${named["name"]}${maskValue(named["value"] ?? "")}`;
  }
  return arg
    .replace(/(?<=\/\/)[^/@\s]+(?=@)/g, MASK)
    .replace(/(?<=[?&][^=&]*(?:key|token|secret|pass|auth)[^=&]*=)[^&\s]+/gi, maskValue)
    .replace(RANDOM, MASK);
}

function quote(word: string): string {
  return /^[\w./:@%+=,•…${}~-]+$/u.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
