import type { ViewProps } from "./actions.ts";
import { nameAndIdOfClient } from "../../base/client-name.ts";
import { modeOptions, OF_ALL } from "./clients.tsx";
import { count } from "./format.ts";
import { Button, Choice, Header, Ready } from "./parts.tsx";

const EXAMPLE = `[modes.review]
title = "Code review"
tools = { servers = ["git", "files"] }`;

export function ModesView({ state, actions }: ViewProps) {
  return (
    <div>
      <Header title="Modes" about="A mode shows clients a part of all tools." />
      <Ready
        of={state.modes}
        what="modes"
        icon="modes"
        draw={({ mode, modes }) => (
          <div>
            <ul class="plain cards grid">
              {modes.map(({ name, title, icon, tools, clients, problem }) => (
                <li
                  key={name}
                  class={name === mode ? "card panel chosen" : "card panel"}
                  data-mode={name}
                >
                  <h2>
                    {icon === undefined ? "" : `${icon} `}
                    {title ?? name}
                  </h2>
                  <p class="about">
                    {count(tools, "tool")} · {count(clients.length, "client")}
                  </p>
                  {problem !== undefined && (
                    <p key="problem" class="about bad">
                      {problem}
                    </p>
                  )}
                  <p class="actions">
                    {name === mode ? (
                      <span key="now" class="badge">
                        in use
                      </span>
                    ) : (
                      <Button
                        key="use"
                        text="Use for all"
                        label={`Use for all: ${title ?? name}`}
                        onPress={() => actions.setMode(name)}
                      />
                    )}
                  </p>
                </li>
              ))}
            </ul>
            {modes.length < 2 && (
              <div key="example" class="part flow">
                <p class="about">Modes are made in the manifest:</p>
                <pre tabindex={0}>{EXAMPLE}</pre>
              </div>
            )}
            {modes.length > 1 && state.clients.length > 0 && (
              <section key="clients">
                <h2 class="part">For one client</h2>
                <ul class="card list">
                  {state.clients.map((client) => (
                    <li key={client.id} class="pair">
                      <span>{nameAndIdOfClient(client)}</span>
                      <Choice
                        label="Mode"
                        value={
                          modes.find(({ clients }) => clients.includes(client.id))?.name ?? OF_ALL
                        }
                        options={modeOptions(modes)}
                        onChoose={(chosen) =>
                          actions.setMode(chosen === OF_ALL ? null : chosen, client.id)
                        }
                      />
                    </li>
                  ))}
                </ul>
              </section>
            )}
          </div>
        )}
      />
    </div>
  );
}
