import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { HubError } from "../../src/base/errors.ts";
import type { EventStamp, HubEvent } from "../../src/base/hub-events.ts";
import type { HubEventDocument } from "../../src/control/schemas.ts";

/** The type of a value after it was written as JSON and read again. */
type AsJson<T> = T extends HubError
  ? { readonly code: string; readonly message: string }
  : T extends readonly (infer Item)[]
    ? readonly AsJson<Item>[]
    : T extends object
      ? { [Key in keyof T as undefined extends T[Key] ? never : Key]: AsJson<T[Key]> } & {
          [Key in keyof T as undefined extends T[Key] ? Key : never]?: AsJson<
            Exclude<T[Key], undefined>
          >;
        }
      : T;

/** The members that the hub adds to an event when it is sent. */
type Added = Pick<HubEventDocument, "level" | "text">;

type Emitted<Event = HubEvent> = Event extends HubEvent
  ? AsJson<Event & EventStamp> & Omit<Added, keyof Event>
  : never;

/** `true`, or the type that does not fit. */
type Fits<From, To> = [From] extends [To] ? true : [From, "does not fit"];

const emittedFits: Fits<Emitted, HubEventDocument> = true;

/** The members of all events of a kind. */
type Members<Event extends { kind: string }, Kind> = Event extends { kind: Kind }
  ? keyof Event
  : never;

type MissingMembers = {
  [Kind in HubEvent["kind"]]: Exclude<Members<Emitted, Kind>, Members<HubEventDocument, Kind>>;
}[HubEvent["kind"]];
type UnknownMembers = {
  [Kind in HubEvent["kind"]]: Exclude<Members<HubEventDocument, Kind>, Members<Emitted, Kind>>;
}[HubEvent["kind"]];

const nothingIsMissing: Fits<MissingMembers, never> = true;
const nothingIsUnknown: Fits<UnknownMembers, never> = true;

describe("an event on the wire", () => {
  it("has the members that the hub emits, by the types of both", () => {
    assert.deepEqual([emittedFits, nothingIsMissing, nothingIsUnknown], [true, true, true]);
  });
});
