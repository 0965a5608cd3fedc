/**
 * Skills: the extension by which servers publish them (ext-skills, `specification/stable/skills.mdx`), and how the
 * skills of several servers are kept apart. A skill is identified by its server and its URI (Skill URIs). Pure.
 */

import type { ServerListing } from "./listing.ts";
import { decodeUri, encodeUriTemplate } from "./uris.ts";
import { matchesGlob } from "./names.ts";

/** The name of the extension in `capabilities.extensions`. */
export const SKILLS_EXTENSION = "io.modelcontextprotocol/skills";

/** The methods of the extension, apart from `resources/read`. */
export const SkillMethod = {
  list: "skills/list",
  get: "skills/get",
  readDirectory: "resources/directory/read",
} as const;

type Extensions = Readonly<Record<string, object>>;

export function declaresSkills(extensions: Extensions): boolean {
  return Object.hasOwn(extensions, SKILLS_EXTENSION);
}

/** Whether the peer supports `resources/directory/read`. */
export function supportsDirectoryRead(extensions: Extensions): boolean {
  const settings = Object.hasOwn(extensions, SKILLS_EXTENSION)
    ? extensions[SKILLS_EXTENSION]
    : undefined;
  return settings !== undefined && "directoryRead" in settings && settings.directoryRead === true;
}

/** The combined capability of several servers: `directoryRead` if one of them has it. */
export function mergeSkillsCapability(servers: readonly Extensions[]): Extensions {
  if (!servers.some(declaresSkills)) return {};
  return { [SKILLS_EXTENSION]: servers.some(supportsDirectoryRead) ? { directoryRead: true } : {} };
}

/**
 * The extensions that a legacy client is told of in its one handshake. Skills are declared only to a client that
 * declares them; other clients read the files of skills as resources.
 * @param servers the combined extensions of the servers
 * @param isComplete whether these are the extensions of all servers; if not, some server may still have skills
 */
export function extensionsForLegacyClient(
  servers: Extensions,
  isComplete: boolean,
  client: Extensions,
): Extensions {
  if (declaresSkills(client))
    return isComplete || declaresSkills(servers) ? servers : { ...servers, [SKILLS_EXTENSION]: {} };
  return Object.fromEntries(Object.entries(servers).filter(([name]) => name !== SKILLS_EXTENSION));
}

/** Which skills of a server are shown, by globs of their names or URIs; undefined allows all. */
export interface SkillRules {
  readonly allow?: readonly string[] | undefined;
  readonly deny?: readonly string[] | undefined;
}

/** The skills and resources of one server, and which of the skills are shown (absent: all). */
export interface SkillSource {
  readonly server: string;
  readonly listing: Pick<ServerListing, "skills" | "resources">;
  readonly skills?: SkillRules | undefined;
}

const SKILL_FILE_SUFFIX = "/SKILL.md";

/** The directory of a skill: its URI without `/SKILL.md`; undefined if the URI is not that of a skill. */
export function skillRootOf(uri: string): string | undefined {
  return uri.endsWith(SKILL_FILE_SUFFIX) && uri.length > SKILL_FILE_SUFFIX.length
    ? uri.slice(0, -SKILL_FILE_SUFFIX.length)
    : undefined;
}

/** The name of the skill with this URI: the last segment of its directory. */
export function skillNameOf(uri: string): string {
  const root = skillRootOf(uri) ?? uri;
  return root.slice(root.lastIndexOf("/") + 1);
}

/** The URI itself and all its ancestor directories, nearest first. */
function* ancestorPathsOf(uri: string): Generator<string> {
  const first = uri.indexOf("://") + 3;
  for (let end = uri.length; end > first; end = uri.lastIndexOf("/", end - 1)) {
    yield uri.slice(0, end);
  }
}

/**
 * The skill directories (roots) of all servers. A root belongs to the first server that has it. If a later server has
 * the same root, its skill is exposed under URIs that name the server, together with the skills around and inside it.
 */
export class SkillRoots {
  /** By root: the server that owns it. Contains only roots whose URIs are exposed unchanged. */
  readonly #owners = new Map<string, string>();
  /**
   * By server. `#renamed`: the outermost roots that clients see under another URI. `#hidden`: the roots that the
   * manifest hides.
   */
  readonly #renamed = new Map<string, Set<string>>();
  readonly #hidden = new Map<string, Set<string>>();
  /** For each server with filter rules: the roots that are shown. */
  readonly #shown = new Map<string, ReadonlySet<string>>();
  readonly #rules = new Map<string, SkillRules>();

  /** @param sources all servers of the hub, in the order of the manifest */
  constructor(sources: readonly SkillSource[]) {
    for (const { server, skills: rules } of sources)
      if (rules !== undefined) this.#rules.set(server, rules);
    if (!sources.some(({ listing }) => listing.skills.length > 0)) return;
    const servers = new Set(sources.map(({ server }) => server));
    const claimed = new Set<string>();
    for (const { server, listing, skills: rules } of sources) {
      const { skills, resources } = listing;
      const shown = new Set<string>();
      const hidden = new Set<string>();
      for (const { key } of skills) {
        const root = skillRootOf(key);
        if (root !== undefined) (isShown(key, rules) ? shown : hidden).add(root);
      }
      if (rules !== undefined) {
        this.#hidden.set(server, hidden);
        this.#shown.set(server, shown);
      }
      const groups = Map.groupBy(shown, (root) => outermostRootOf(root, shown));
      for (const [top, roots] of groups) {
        const isTaken = roots.some((root) => this.#owners.has(root)) || claimed.has(top);
        const named = decodeUri(top)?.server;
        if (isTaken || (named !== undefined && servers.has(named))) {
          const own = this.#renamed.get(server) ?? new Set();
          this.#renamed.set(server, own.add(top));
        } else for (const root of roots) this.#owners.set(root, server);
      }
      // URIs that this server lists as resources are read from this server, so no skill of a later server can own them.
      for (const { key } of resources) {
        for (const path of ancestorPathsOf(key)) claimed.add(path);
      }
    }
  }

  hasRenamed(server: string): boolean {
    return this.#renamed.has(server);
  }

  /** The URI under which clients see a file of a renamed skill; undefined if no renamed skill contains the file. */
  exposedUriOf(server: string, uri: string): string | undefined {
    const roots = this.#renamed.get(server);
    if (roots === undefined || !isWithinAny(uri, roots)) return undefined;
    return encodeUriTemplate(server, uri);
  }

  /** The server of the innermost skill that contains a URI. @param uri as clients see it */
  ownerOf(uri: string): string | undefined {
    if (this.#owners.size === 0) return undefined;
    for (const path of ancestorPathsOf(uri)) {
      const owner = this.#owners.get(path);
      if (owner !== undefined) return owner;
    }
    return undefined;
  }

  /** Whether the manifest hides the skill with this URI, even an unlisted one. @param uri as the server knows it */
  hidesSkill(server: string, uri: string): boolean {
    const root = skillRootOf(uri);
    return root !== undefined && !isShown(uri, this.#rules.get(server));
  }

  /**
   * Whether the manifest hides a resource because it is a file of a hidden skill. A file of a nested skill belongs to
   * the enclosing skill, too, so it is shown if one of the two skills is shown.
   * @param uri as the server knows it
   */
  hidesFile(server: string, uri: string): boolean {
    if (!this.#rules.has(server) || isWithinAny(uri, this.#shown.get(server) ?? NO_ROOTS))
      return false;
    return isWithinAny(uri, this.#hidden.get(server) ?? NO_ROOTS);
  }
}

const NO_ROOTS: ReadonlySet<string> = new Set();

/** Whether a URI is that of the directory `root`, or of a file below it. */
export function isWithin(uri: string, root: string): boolean {
  return uri.startsWith(root) && (uri.length === root.length || uri[root.length] === "/");
}

function isWithinAny(uri: string, roots: ReadonlySet<string>): boolean {
  for (const path of ancestorPathsOf(uri)) if (roots.has(path)) return true;
  return false;
}

function outermostRootOf(root: string, roots: ReadonlySet<string>): string {
  let found = root;
  for (const path of ancestorPathsOf(root)) if (roots.has(path)) found = path;
  return found;
}

/** Whether the rules allow a skill: globs match its name or its whole URI. */
function isShown(uri: string, rules: SkillRules | undefined): boolean {
  if (rules === undefined) return true;
  const name = skillNameOf(uri);
  const matches = (glob: string): boolean => matchesGlob(glob, name) || matchesGlob(glob, uri);
  return (rules.allow?.some(matches) ?? true) && !(rules.deny?.some(matches) ?? false);
}
