import type { DashboardState } from "./state.ts";

/** Says what one hub for all clients would save, and by which command. */
export function SharingOffers({ state }: { readonly state: DashboardState }) {
  const { hubs, sharingOffers } = state;
  if (hubs.length < 2 || sharingOffers.length === 0) return undefined;
  return (
    <ul class="plain cards offers" aria-label="One hub for all clients">
      {sharingOffers.map(({ figures, command }) => (
        <li key={command} class="card panel break" data-offer={command}>
          <span>
            {figures}. To let all clients share one hub, run <code>{command}</code>
          </span>
        </li>
      ))}
    </ul>
  );
}
