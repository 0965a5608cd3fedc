/* Servers that come as packages: `package = "npm:@scope/name@1.2.3"` is a shorthand for the command that runs it. */

/** Where a package is from. */
export type Origin = "npm" | "pypi" | "docker";

/** A package, as a manifest names it. */
export interface Package {
  readonly origin: Origin;
  /** Of an image the whole reference. */
  readonly name: string;
  /** undefined: the newest. Images say theirs in their name. */
  readonly version: string | undefined;
}

/** A way to start something: a bare name to look up in PATH, and what it is given first. */
export interface Start {
  readonly command: string;
  readonly before: readonly string[];
}

/** Each of these matches whole words only, and none that begins like an option. */
const NPM =
  /^(?<name>(?:@[a-z0-9~][\w.~-]*\/)?[a-z0-9~][\w.~-]*)(?:@(?<version>[\^~]?[a-z0-9][\w.+-]*))?$/i;
const PYPI = /^(?<name>[a-z0-9](?:[\w.-]*[a-z0-9])?)(?:==(?<version>(?:\d+!)?\d[a-z0-9.+_-]*))?$/i;
const PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const DOCKER = new RegExp(
  String.raw`^(?<name>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?/)?${PART}(?:/${PART})*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)$`,
);

const GRAMMARS: Readonly<Record<Origin, { readonly pattern: RegExp; readonly form: string }>> = {
  npm: { pattern: NPM, form: "npm:name, npm:@scope/name or npm:name@1.2.3" },
  pypi: { pattern: PYPI, form: "pypi:name or pypi:name==1.2" },
  docker: { pattern: DOCKER, form: "docker:image, docker:image:tag or docker:image@sha256:…" },
};
const MAX_NAME = 300;

/** What a package looks like, as it stands in "expected …". */
export const PACKAGE = `a package such as "npm:@scope/name@1.2.3", "pypi:name==1.2" or "docker:image:tag"`;

/** @returns undefined if it is none */
export function parsePackage(text: string): Package | undefined {
  const colon = text.indexOf(":");
  const origin = ORIGINS.find((one) => one === text.slice(0, colon));
  if (origin === undefined || text.length > MAX_NAME) return undefined;
  const { name, version } = GRAMMARS[origin].pattern.exec(text.slice(colon + 1))?.groups ?? {};
  return name === undefined ? undefined : { origin, name, version };
}
const ORIGINS = Object.keys(GRAMMARS) as readonly Origin[];

/** As a manifest names it. */
export function printPackage({ origin, name, version }: Package): string {
  if (version === undefined) return `${origin}:${name}`;
  return `${origin}:${name}${origin === "pypi" ? "==" : "@"}${version}`;
}

/** What runs packages of each origin, the first choice first. None of them asks anything. */
const RUNNERS = {
  npm: ["npx", "bunx", "deno"],
  pypi: ["uvx", "pipx"],
  docker: ["docker", "podman"],
} as const satisfies Readonly<Record<Origin, readonly string[]>>;

export type Runner = (typeof RUNNERS)[Origin][number];

/** All of them. */
export const ALL_RUNNERS: readonly Runner[] = Object.values(RUNNERS).flat();

/** Those for packages of that origin. */
export function runnersOf(origin: Origin): readonly Runner[] {
  return RUNNERS[origin];
}

/** Variables that a container can be given by name. */
export const VARIABLE = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

/**
 * How a runner starts a package. What the package itself is given follows behind it.
 * @param variables the names of those that it is to have; a container has no others. Their values stand in no argument.
 * @param server its name, which a container bears so that it can be found
 */
export function startPackage(
  { name, version, ...rest }: Package,
  runner: Runner,
  variables: readonly string[],
  server: string,
): Start {
  const versioned = version === undefined ? name : `${name}@${version}`;
  switch (runner) {
    case "npx":
      return { command: runner, before: ["-y", versioned] };
    case "bunx":
      return { command: runner, before: [versioned] };
    case "deno":
      return { command: runner, before: ["run", "-A", `${rest.origin}:${versioned}`] };
    case "uvx":
      return { command: runner, before: [versioned] };
    case "pipx":
      return version === undefined
        ? { command: runner, before: ["run", name] }
        : { command: runner, before: ["run", "--spec", `${name}==${version}`, name] };
    case "docker":
    case "podman": {
      // The container goes when its stdin ends or its client is told to; the label is for one that stays all the same.
      const common = ["run", "-i", "--rm", "--init", `--label=toolmux.server=${server}`];
      const given = variables.map((variable) => `--env=${variable}`);
      return { command: runner, before: [...common, ...given, name] };
    }
  }
}

/** What a server's command was made of, if a package was named. */
export interface Packaged {
  /** As a manifest names it. */
  readonly name: string;
  /** What may be used in the place of `command` if that is not there, best first; each is given what follows in `args`. */
  readonly others: readonly Start[];
  /** How many of `args` are about the package, and not for it. */
  readonly skip: number;
}

/** The other ways to start a package, whole. @param args those of `command`, filled in */
export function otherWays(
  { others, skip }: Packaged,
  args: readonly string[],
): readonly { readonly command: string; readonly args: readonly string[] }[] {
  const own = args.slice(skip);
  return others.map(({ command, before }) => ({ command, args: [...before, ...own] }));
}
