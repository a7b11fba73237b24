"use strict";
// A guest that is pointed at or has the focus lights up what it holds: CPUs, devices, providers. A CPU or a device that is pointed at lights up
// the guests that hold it.
const light = target => {
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  if (!(target instanceof Element)) return;
  const guest = target.closest("[data-guest]"), held = target.closest(".cpu[data-guests], .device[data-guests]");
  const article = target.closest("article");
  if (guest) for (const part of article.querySelectorAll(`[data-guests~="${guest.dataset.guest}"]`)) part.classList.add("lit");
  else if (held) for (const number of held.dataset.guests.split(" ").filter(Boolean)) {
    article.querySelector(`[data-guest="${number}"]`).classList.add("lit");
  }
};
document.addEventListener("mouseover", event => light(event.target));
document.addEventListener("mouseout", () => light(document.activeElement));
document.addEventListener("focusin", event => light(event.target));
document.addEventListener("focusout", () => light(null));
