import type { Actions } from "./actions.ts";
import type { PinsDocument } from "./documents.ts";
import { escapeDeceptive } from "../../base/escape.ts";
import { count, formatAgo } from "./format.ts";
import { Button } from "./parts.tsx";

type Pending = PinsDocument["pending"][number];

const REASONS: Readonly<Record<Pending["reason"], string>> = {
  new: "is new",
  changed: "has changed",
  finding: "has suspicious text",
  pinFile: "is not as in the pin file",
};

/** What a server lists that is not accepted, with each change, and buttons that accept it. */
export function PendingPins({
  pins: { server, pin, fault, pending },
  now,
  actions,
}: {
  readonly pins: PinsDocument;
  readonly now: number;
  readonly actions: Actions;
}) {
  // What only the pin file refuses is accepted already.
  const acceptable = pending.filter(({ reason }) => reason !== "pinFile");
  if (pending.length === 0 && fault === undefined) return <></>;
  return (
    <section class="card panel flow" aria-labelledby="pending">
      <h2 id="pending">
        {pending.length === 0 ? "Not compared" : `${count(pending.length, "change")} not accepted`}
      </h2>
      {fault !== undefined && (
        <p key="fault" class="break">
          {fault}
        </p>
      )}
      {pin === "block" && (
        <p key="blocked" class="about">
          What is not accepted is neither shown to clients nor called.
        </p>
      )}
      {pending.map((each) => (
        <PendingItem
          key={`${each.kind} ${each.name} ${each.digest}`}
          pending={each}
          now={now}
          onAccept={() => void actions.acceptPins(server, [chosen(each)])}
        />
      ))}
      {acceptable.length > 1 && (
        <p key="all" class="actions">
          <Button
            text={`Accept all ${count(acceptable.length, "change")}`}
            onPress={() => void actions.acceptPins(server, acceptable.map(chosen))}
          />
        </p>
      )}
    </section>
  );
}

/** What the person has seen: with the digest, a later change is not accepted. */
function chosen({ kind, name, digest }: Pending) {
  return { kind, name, digest };
}

function PendingItem({
  pending: { kind, name: ownName, reason, machines, acceptedAt, peerThen, peerNow, parts },
  now,
  onAccept,
}: {
  readonly pending: Pending;
  readonly now: number;
  readonly onAccept: () => void;
}) {
  const name = escapeDeceptive(ownName);
  const what = kind === "instructions" ? "The instructions" : kind === "prompt" ? "Prompt" : "Tool";
  return (
    <div class="stack" role="group" aria-label={`${what} ${name}`.trim()}>
      <p class="pair">
        <span>
          {what}{" "}
          {name !== "" && (
            <span key="name" class="mono break">
              {name}
            </span>
          )}{" "}
          {REASONS[reason]}
          <span class="about">
            {machines === undefined ? "" : ` on ${machines.join(", ")}`}
            {acceptedAt === undefined ? "" : `; accepted ${formatAgo(acceptedAt, now)}`}
            {peerThen !== undefined && peerNow !== undefined && peerThen !== peerNow
              ? `; ${peerThen}, now ${peerNow}`
              : ""}
          </span>
        </span>
        {reason !== "pinFile" && (
          <Button
            key="accept"
            text="Accept"
            label={`Accept ${kind === "instructions" ? "the instructions" : name}`}
            onPress={onAccept}
          />
        )}
      </p>
      {parts.length > 0 && (
        <pre
          key="diff"
          class="diff"
          tabindex={0}
          aria-label={`What has changed in ${name || "them"}`}
        >
          {parts.flatMap(({ part, changes, omitted }) => [
            ...changes.flatMap(({ path, before, after }) => [
              ...(before === undefined ? [] : [<del>{`- ${path}: ${before}\n`}</del>]),
              ...(after === undefined ? [] : [<ins>{`+ ${path}: ${after}\n`}</ins>]),
            ]),
            ...(omitted === 0 ? [] : [<span key={part}>{`… and ${omitted} more\n`}</span>]),
          ])}
        </pre>
      )}
    </div>
  );
}
