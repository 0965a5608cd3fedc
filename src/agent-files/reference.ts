import { HubError } from "../base/errors.ts";

/** A reference to an agent in a registry: `[HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST]`. */
export interface Reference {
  /** `docker.io` for Docker Hub, else the host with its port. */
  readonly host: string;
  /** The path of the repository, such as `docker/code-reviewer`. */
  readonly repository: string;
  /** Undefined if only a digest was given. */
  readonly tag: string | undefined;
  /** `sha256:` and 64 hex digits; it wins over the tag. */
  readonly digest: string | undefined;
}

export const DOCKER_HUB = "docker.io";

const PATH_PART = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
const HOST = /^(?:\[[0-9a-f:.]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::\d{1,5})?$/i;
const REPOSITORY = new RegExp(`^${PATH_PART}(?:/${PATH_PART})*$`);
const TAG = /^\w[\w.-]{0,127}$/;
export const DIGEST = /^sha256:[0-9a-f]{64}$/;
const MAX_LENGTH = 512;

/**
 * Parses a reference. The tag is `latest` if there is neither a tag nor a digest. A repository of Docker Hub without a
 * namespace belongs to `library`.
 * @returns undefined if the text is no reference
 */
export function parseReference(text: string): Reference | undefined {
  if (text.length > MAX_LENGTH) return undefined;
  const [name = "", digest, ...more] = text.split("@");
  if (more.length > 0 || (digest !== undefined && !DIGEST.test(digest))) return undefined;
  const slash = name.indexOf("/");
  const first = slash < 0 ? "" : name.slice(0, slash);
  const hasHost = /[.:[]/.test(first) || first === "localhost";
  const host = hasHost ? first.toLowerCase() : DOCKER_HUB;
  const path = hasHost ? name.slice(slash + 1) : name;
  const colon = path.indexOf(":");
  const repository = colon < 0 ? path : path.slice(0, colon);
  const tag = colon < 0 ? undefined : path.slice(colon + 1);
  const isValid =
    HOST.test(host) && REPOSITORY.test(repository) && (tag === undefined || TAG.test(tag));
  if (!isValid) return undefined;
  const isHub = HUB_ALIASES.has(host);
  return {
    host: isHub ? DOCKER_HUB : host,
    repository: isHub && !repository.includes("/") ? `library/${repository}` : repository,
    tag: tag ?? (digest === undefined ? "latest" : undefined),
    digest,
  };
}

const HUB_ALIASES = new Set([DOCKER_HUB, "index.docker.io", "registry-1.docker.io"]);

/** @throws {HubError} usage */
export function parseReferenceOrThrow(text: string): Reference {
  const reference = parseReference(text);
  if (reference !== undefined) return reference;
  const shown = JSON.stringify(text.slice(0, 200));
  throw new HubError(
    "usage",
    `${shown} is no reference of an agent in a registry. Write [HOST/]REPOSITORY[:TAG], such as agentcatalog/pirate or ghcr.io/owner/name:1.2.`,
  );
}

/** The whole reference: `docker.io/docker/code-reviewer:latest`. */
export function formatReference({ host, repository, tag, digest }: Reference): string {
  return `${host}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}
