import manifest from "../../package.json" with { type: "json" };

/** The version that `bun scripts/build.ts --version=…` has given to the build; undeclared otherwise. */
declare const TOOLMUX_VERSION: string | undefined;

/** The version of toolmux: that of the build, by default from package.json. */
export const VERSION: string =
  typeof TOOLMUX_VERSION === "string" ? TOOLMUX_VERSION : manifest.version;

/**
 * Compares two versions (semver, precedence). @returns negative if `a` is older, positive if it is newer. A text that is
 * no version is older than each version.
 */
export function compareVersions(a: string, b: string): number {
  const [first, second] = [parseVersion(a), parseVersion(b)];
  if (first === undefined || second === undefined)
    return Number(first !== undefined) - Number(second !== undefined);
  for (const [at, number] of first.numbers.entries()) {
    const difference = number - (second.numbers[at] ?? 0);
    if (difference !== 0) return difference;
  }
  // A version without a pre-release is newer than its pre-releases.
  if (first.labels.length === 0 || second.labels.length === 0)
    return second.labels.length - first.labels.length;
  for (const [at, label] of first.labels.entries()) {
    const other = second.labels[at];
    if (other === undefined) return 1;
    const difference = compareLabels(label, other);
    if (difference !== 0) return difference;
  }
  return first.labels.length - second.labels.length;
}

/** Whether a version is older than this program. */
export function isOlder(version: string): boolean {
  return compareVersions(version, VERSION) < 0;
}

interface ParsedVersion {
  readonly numbers: readonly [major: number, minor: number, patch: number];
  /** The parts of the pre-release; none if the version is no pre-release. */
  readonly labels: readonly string[];
}

function parseVersion(text: string): ParsedVersion | undefined {
  const [, major, minor, patch, labels] =
    /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([\w.-]+))?(?:\+.*)?$/.exec(text) ?? [];
  if (major === undefined) return undefined;
  return {
    numbers: [Number(major), Number(minor), Number(patch)],
    labels: labels?.split(".") ?? [],
  };
}

/** Numbers are older than words, and are compared as numbers. */
function compareLabels(a: string, b: string): number {
  const [first, second] = [a, b].map((label) => (/^\d+$/.test(label) ? Number(label) : undefined));
  if (first !== undefined && second !== undefined) return first - second;
  if (first !== undefined || second !== undefined) return first === undefined ? 1 : -1;
  return a < b ? -1 : Number(a > b);
}
