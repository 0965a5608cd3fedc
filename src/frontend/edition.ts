import type { Section } from "../catalog/section.ts";
import { wrapOutputSchema } from "../protocol/output.ts";

const known = new WeakMap<Section, Section>();

/**
 * A section in the form of the legacy era, cached: output schemas of modern servers' tools are wrapped to be of type
 * object. Entries of legacy servers pass unchanged.
 */
export function legacyEdition(section: Section): Section {
  const { kind, info: origin } = section;
  if (kind !== "tools" || origin.modernServers.size === 0) return section;
  const before = known.get(section);
  if (before !== undefined) return before;
  const edition = section.withBytes((entry) => {
    if (!origin.modernServers.has(entry.server)) return undefined;
    const { bytes } = entry;
    const made = wrap(bytes);
    return made === bytes ? undefined : made;
  });
  known.set(section, edition);
  return edition;
}

/** By the bytes before wrapping: entries of an unchanged server have the very same bytes in the next section. */
const wrapped = new WeakMap<Uint8Array, Uint8Array>();

function wrap(bytes: Uint8Array): Uint8Array {
  const before = wrapped.get(bytes);
  if (before !== undefined) return before;
  const made = wrapOutputSchema(bytes);
  wrapped.set(bytes, made);
  return made;
}
