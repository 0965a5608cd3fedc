import type { Section } from "../catalog/section.ts";
import { wrapSchema } from "../protocol/output.ts";

const known = new WeakMap<Section, Section>();

/** A section as clients of the legacy era get it, made once. What servers of that era list stays as it is. */
export function legacyEdition(section: Section): Section {
  const { kind, origin } = section;
  if (kind !== "tools" || origin.modern.size === 0) return section;
  const before = known.get(section);
  if (before !== undefined) return before;
  const edition = section.dress((entry) => {
    if (!origin.modern.has(entry.server)) return undefined;
    const { bytes } = entry;
    const made = wrap(bytes);
    return made === bytes ? undefined : made;
  });
  known.set(section, edition);
  return edition;
}

/** By what was wrapped: entries of servers that have not changed have the very same bytes in the next section. */
const wrapped = new WeakMap<Uint8Array, Uint8Array>();

function wrap(bytes: Uint8Array): Uint8Array {
  const before = wrapped.get(bytes);
  if (before !== undefined) return before;
  const made = wrapSchema(bytes);
  wrapped.set(bytes, made);
  return made;
}
