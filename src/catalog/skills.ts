/**
 * Skills: the extension by which servers publish them (ext-skills, `specification/stable/skills.mdx`), and how the
 * skills of several servers are kept apart. A skill is identified by its server and its URI (Skill URIs). Pure.
 */

import type { Item } from "./listing.ts";
import { readLocator, writeTemplate } from "./uris.ts";
import { matchesGlob } from "./names.ts";

/** The name of the extension in `capabilities.extensions`. */
export const SKILLS = "io.modelcontextprotocol/skills";

/** The methods of the extension beside `resources/read`. */
export const SkillMethod = {
  list: "skills/list",
  get: "skills/get",
  readDirectory: "resources/directory/read",
} as const;

/** The extensions of a peer, by name. */
type Extensions = Readonly<Record<string, object>>;

export function declaresSkills(extensions: Extensions): boolean {
  return Object.hasOwn(extensions, SKILLS);
}

/** Whether the peer supports `resources/directory/read`. */
export function readsDirectories(extensions: Extensions): boolean {
  const settings = Object.hasOwn(extensions, SKILLS) ? extensions[SKILLS] : undefined;
  return settings !== undefined && "directoryRead" in settings && settings.directoryRead === true;
}

/** The combined capability of several servers: `directoryRead` if one of them has it. */
export function joinSkills(servers: readonly Extensions[]): Extensions {
  if (!servers.some(declaresSkills)) return {};
  return { [SKILLS]: servers.some(readsDirectories) ? { directoryRead: true } : {} };
}

/** All extensions but skills, for legacy clients, which read the files of skills as resources. */
export function withoutSkills(extensions: Extensions): Extensions {
  return Object.fromEntries(Object.entries(extensions).filter(([name]) => name !== SKILLS));
}

/** Which skills of a server are shown, by globs of their names or URIs; undefined allows all. */
export interface SkillRules {
  readonly allow?: readonly string[] | undefined;
  readonly deny?: readonly string[] | undefined;
}

/** The skills and resources of one server. */
export interface SkillSource {
  readonly server: string;
  readonly skills: readonly Item[];
  readonly resources: readonly Item[];
  readonly rules: SkillRules | undefined;
}

const FILE = "/SKILL.md";

/** The directory of a skill: its URI without `/SKILL.md`; undefined if the URI is not that of a skill. */
export function rootOf(uri: string): string | undefined {
  return uri.endsWith(FILE) && uri.length > FILE.length ? uri.slice(0, -FILE.length) : undefined;
}

/** The URI itself and all its ancestor directories, nearest first. */
function* pathsOf(uri: string): Generator<string> {
  const first = uri.indexOf("://") + 3;
  for (let end = uri.length; end > first; end = uri.lastIndexOf("/", end - 1)) {
    yield uri.slice(0, end);
  }
}

/**
 * The skill directories (roots) of all servers. Every root has one owner, the first server that has it. If a later
 * server has a skill with the same root, nested ones included, its whole outermost root is exposed under URIs that name
 * the server.
 */
export class SkillPlaces {
  /** The owner of each root that is exposed unchanged. */
  readonly #owners = new Map<string, string>();
  /** By server: the outermost roots that are exposed under another URI, and the roots that are hidden. */
  readonly #renamed = new Map<string, Set<string>>();
  readonly #hidden = new Map<string, Set<string>>();
  /** By server with filter rules: the roots that are shown. */
  readonly #shown = new Map<string, ReadonlySet<string>>();
  readonly #rules = new Map<string, SkillRules>();

  /**
   * @param sources in the order of the manifest
   * @param servers the names of all servers of the hub
   */
  constructor(sources: readonly SkillSource[], servers: ReadonlySet<string>) {
    for (const { server, rules } of sources)
      if (rules !== undefined) this.#rules.set(server, rules);
    if (!sources.some(({ skills }) => skills.length > 0)) return;
    const claimed = new Set<string>();
    for (const { server, skills, resources, rules } of sources) {
      const shown = new Set<string>();
      const hidden = new Set<string>();
      for (const { key } of skills) {
        const root = rootOf(key);
        if (root !== undefined) (isShown(key, root, rules) ? shown : hidden).add(root);
      }
      if (rules !== undefined) {
        this.#hidden.set(server, hidden);
        this.#shown.set(server, shown);
      }
      const groups = Map.groupBy(shown, (root) => outermost(root, shown));
      for (const [top, roots] of groups) {
        const isTaken = roots.some((root) => this.#owners.has(root)) || claimed.has(top);
        const named = readLocator(top)?.server;
        if (isTaken || (named !== undefined && servers.has(named))) {
          const own = this.#renamed.get(server) ?? new Set();
          this.#renamed.set(server, own.add(top));
        } else for (const root of roots) this.#owners.set(root, server);
      }
      // A URI that this server lists as a resource is read from it, so no skill of a later server can own it.
      for (const { key } of resources) {
        for (const path of pathsOf(key)) claimed.add(path);
      }
    }
  }

  /** Whether skills of the server are exposed under other URIs. */
  renames(server: string): boolean {
    return this.#renamed.has(server);
  }

  /** The exposed URI of a file of a renamed skill; undefined if no renamed skill contains it. */
  rename(server: string, uri: string): string | undefined {
    const roots = this.#renamed.get(server);
    if (roots === undefined || !isIn(uri, roots)) return undefined;
    return writeTemplate(server, uri);
  }

  /** The server of the nearest skill that contains this exposed URI. */
  ownerOf(uri: string): string | undefined {
    if (this.#owners.size === 0) return undefined;
    for (const path of pathsOf(uri)) {
      const owner = this.#owners.get(path);
      if (owner !== undefined) return owner;
    }
    return undefined;
  }

  /** Whether the manifest hides the skill with this URI of the server's own, listed or not. */
  hidesSkill(server: string, uri: string): boolean {
    const root = rootOf(uri);
    return root !== undefined && !isShown(uri, root, this.#rules.get(server));
  }

  /**
   * Whether the manifest hides the resource with this URI of the server's own, as a file of a hidden skill. A file of a
   * nested skill belongs to the enclosing skill, too, so it is shown while one of the two is.
   */
  hidesFile(server: string, uri: string): boolean {
    if (!this.#rules.has(server) || isIn(uri, this.#shown.get(server) ?? NONE)) return false;
    return isIn(uri, this.#hidden.get(server) ?? NONE);
  }
}

const NONE: ReadonlySet<string> = new Set();

/** Whether a URI is that of the directory, or of a file in it. */
export function isWithin(uri: string, root: string): boolean {
  return uri.startsWith(root) && (uri.length === root.length || uri[root.length] === "/");
}

function isIn(uri: string, roots: ReadonlySet<string>): boolean {
  for (const path of pathsOf(uri)) if (roots.has(path)) return true;
  return false;
}

function outermost(root: string, roots: ReadonlySet<string>): string {
  let found = root;
  for (const path of pathsOf(root)) if (roots.has(path)) found = path;
  return found;
}

/** A glob matches the skill's name, which is the last segment of its root, or the whole URI. */
function isShown(uri: string, root: string, rules: SkillRules | undefined): boolean {
  if (rules === undefined) return true;
  const name = root.slice(root.lastIndexOf("/") + 1);
  const matches = (glob: string): boolean => matchesGlob(glob, name) || matchesGlob(glob, uri);
  return (rules.allow?.some(matches) ?? true) && !(rules.deny?.some(matches) ?? false);
}
