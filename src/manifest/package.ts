/* Servers from packages: `package = "npm:@scope/name@1.2.3"` is a shorthand for the command that runs the package. */

/** The registry that a package comes from. */
export type PackageOrigin = "npm" | "pypi" | "docker";

/** A package as named in a manifest. */
export interface PackageSpec {
  readonly origin: PackageOrigin;
  /** The package's name; for an image, the whole reference. */
  readonly name: string;
  /**
   * The package's version; undefined: the latest. For images, always undefined, because the tag is part of `name`.
   */
  readonly version: string | undefined;
}

/** A command that runs a package: the program's name, to look up in PATH, and its first arguments. */
export interface LaunchCommand {
  readonly command: string;
  readonly leadingArgs: readonly string[];
}

/**
 * The patterns of package names. They match no text with white space or a leading hyphen: a name becomes one argument
 * of a runner, which must not take it for an option.
 */
const NPM =
  /^(?<name>(?:@[a-z0-9~][\w.~-]*\/)?[a-z0-9~][\w.~-]*)(?:@(?<version>[\^~]?[a-z0-9][\w.+-]*))?$/i;
const PYPI = /^(?<name>[a-z0-9](?:[\w.-]*[a-z0-9])?)(?:==(?<version>(?:\d+!)?\d[a-z0-9.+_-]*))?$/i;
const IMAGE_PATH_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const DOCKER = new RegExp(
  String.raw`^(?<name>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?/)?${IMAGE_PATH_PART}(?:/${IMAGE_PATH_PART})*(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)$`,
);

const GRAMMARS: Readonly<
  Record<PackageOrigin, { readonly pattern: RegExp; readonly form: string }>
> = {
  npm: { pattern: NPM, form: "npm:name, npm:@scope/name or npm:name@1.2.3" },
  pypi: { pattern: PYPI, form: "pypi:name or pypi:name==1.2" },
  docker: { pattern: DOCKER, form: "docker:image, docker:image:tag or docker:image@sha256:…" },
};
const MAX_PACKAGE_LENGTH = 300;

/** The expected form of a package, to complete "expected …" in problems. */
export const PACKAGE_FORMAT = `a package such as "npm:@scope/name@1.2.3", "pypi:name==1.2" or "docker:image:tag"`;

/** Parses a package as written in a manifest. @returns undefined if the text is not a package */
export function parsePackage(text: string): PackageSpec | undefined {
  const colon = text.indexOf(":");
  const origin = ORIGINS.find((one) => one === text.slice(0, colon));
  if (origin === undefined || text.length > MAX_PACKAGE_LENGTH) return undefined;
  const { name, version } = GRAMMARS[origin].pattern.exec(text.slice(colon + 1))?.groups ?? {};
  return name === undefined ? undefined : { origin, name, version };
}
const ORIGINS = Object.keys(GRAMMARS) as readonly PackageOrigin[];

/** Formats a package as in a manifest. */
export function formatPackage({ origin, name, version }: PackageSpec): string {
  if (version === undefined) return `${origin}:${name}`;
  return `${origin}:${name}${origin === "pypi" ? "==" : "@"}${version}`;
}

/** The programs that can run the packages of each registry, in order of preference. None of them prompts the user. */
const RUNNERS = {
  npm: ["npx", "bunx", "deno"],
  pypi: ["uvx", "pipx"],
  docker: ["docker", "podman"],
} as const satisfies Readonly<Record<PackageOrigin, readonly string[]>>;

export type Runner = (typeof RUNNERS)[PackageOrigin][number];

export const ALL_RUNNERS: readonly Runner[] = Object.values(RUNNERS).flat();

export function runnersOf(origin: PackageOrigin): readonly Runner[] {
  return RUNNERS[origin];
}

/** Names of variables that can be passed to a container with `--env=NAME`. */
export const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_.-]*$/;

/**
 * The command that runs a package. The package's own arguments follow after it.
 * @param variables names of the environment variables to pass to a container, which gets no others; the arguments hold
 * only the names, not the values
 * @param server the server's name, which becomes a label of the container
 */
export function packageCommand(
  { name, version, ...parsed }: PackageSpec,
  runner: Runner,
  variables: readonly string[],
  server: string,
): LaunchCommand {
  const versioned = version === undefined ? name : `${name}@${version}`;
  switch (runner) {
    case "npx":
      return { command: runner, leadingArgs: ["-y", versioned] };
    case "bunx":
      return { command: runner, leadingArgs: [versioned] };
    case "deno":
      return { command: runner, leadingArgs: ["run", "-A", `${parsed.origin}:${versioned}`] };
    case "uvx":
      return { command: runner, leadingArgs: [versioned] };
    case "pipx":
      return version === undefined
        ? { command: runner, leadingArgs: ["run", name] }
        : { command: runner, leadingArgs: ["run", "--spec", `${name}==${version}`, name] };
    case "docker":
    case "podman": {
      // The container ends when its stdin is closed, or when the runner gets a signal; the label identifies a
      // container that survives.
      const common = ["run", "-i", "--rm", "--init", `--label=toolmux.server=${server}`];
      const envArgs = variables.map((variable) => `--env=${variable}`);
      return { command: runner, leadingArgs: [...common, ...envArgs, name] };
    }
  }
}

/** The package that a server's command was made from. */
export interface PackageLaunch {
  /** The package as written in a manifest. */
  readonly name: string;
  /** Commands to try if `command` is not installed, in order of preference, without the package's own arguments. */
  readonly alternatives: readonly LaunchCommand[];
  /** The number of leading `args` that belong to the runner, not to the package. */
  readonly leadingArgCount: number;
}

/**
 * The alternative commands with all their arguments.
 * @param args the resolved arguments of `command`
 */
export function alternativeCommands(
  { alternatives, leadingArgCount }: PackageLaunch,
  args: readonly string[],
): readonly { readonly command: string; readonly args: readonly string[] }[] {
  const packageArgs = args.slice(leadingArgCount);
  return alternatives.map(({ command, leadingArgs }) => ({
    command,
    args: [...leadingArgs, ...packageArgs],
  }));
}
