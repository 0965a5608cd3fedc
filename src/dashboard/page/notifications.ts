import type { ApprovalDocument } from "./documents.ts";
import { callerOf } from "./question.tsx";
import {
  type DashboardState,
  type NotificationSetting,
  questionsOfOthers,
  routeTo,
  valueOf,
} from "./state.ts";
import type { Store } from "./store.ts";

/** The key under which the browser keeps the setting. */
const KEY = "toolmux.notifications";

function readSetting(): NotificationSetting {
  if (!("Notification" in window) || Notification.permission === "denied") return "blocked";
  return Notification.permission === "granted" && localStorage.getItem(KEY) === "on" ? "on" : "off";
}

/** Shows questions as notifications of the desktop while a person looks elsewhere, if that is switched on. */
export class Notifications {
  readonly #store: Store;
  /** The notifications that are shown, by hub and approval. */
  readonly #shown = new Map<string, Notification>();
  /** The approvals that a person has seen or was notified of, by hub and approval. */
  #known: ReadonlySet<string> = new Set();

  constructor(store: Store) {
    this.#store = store;
    store.change({ notifications: readSetting() });
    store.subscribe((state) => this.#update(state));
  }

  /** Switches notifications on or off. Asks the browser for its permission if it has not given it. */
  async set(isOn: boolean): Promise<void> {
    localStorage.setItem(KEY, isOn ? "on" : "off");
    if (isOn && readSetting() === "off") await Notification.requestPermission();
    this.#store.change({ notifications: readSetting() });
  }

  #update(state: DashboardState): void {
    const { approvals, hubId, notifications } = state;
    const own = { id: hubId, approvals: valueOf(approvals) ?? [] };
    const questions = new Map<string, ApprovalDocument>(
      [own, ...questionsOfOthers(state)].flatMap((hub) =>
        hub.approvals.map((question) => [`${hub.id} ${question.id}`, question] as const),
      ),
    );
    for (const [key, notification] of this.#shown) {
      if (questions.has(key)) continue;
      notification.close();
      this.#shown.delete(key);
    }
    const added = [...questions].filter(([key]) => !this.#known.has(key));
    this.#known = new Set(questions.keys());
    if (notifications !== "on" || (!document.hidden && document.hasFocus())) return;
    for (const [key, question] of added) this.#show(key, question);
  }

  #show(key: string, question: ApprovalDocument): void {
    try {
      const title = `${callerOf(question)} wants to run ${question.name}`;
      const body = `${question.reason} Open the page to decide.`;
      const notification = new Notification(title, { body, tag: key, requireInteraction: true });
      notification.addEventListener("click", () => {
        window.focus();
        const { hubId } = this.#store.state;
        location.hash = routeTo(key.startsWith(`${hubId} `) ? "approvals" : "hubs");
        notification.close();
      });
      this.#shown.set(key, notification);
    } catch {
      // Some browsers of phones have notifications for service workers only.
      this.#store.change({ notifications: "blocked" });
    }
  }
}
