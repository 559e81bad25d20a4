"""The speech tab: remove noise from a recording; hear and see both, and what was removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gradio as gr

from glocal.jobs.job import Job
from glocal.jobs.speech import SpeechJob
from glocal.studio.job_tab import JobTab, Updates
from glocal.studio.orders import Made, look_at_sound

_PARTS = {"before": "Before", "after": "After", "residual": "What was removed"}


class SpeechTab(JobTab):
    """A noisy recording in, a clean one and what was removed out."""

    job: ClassVar[type[Job]] = SpeechJob
    title: ClassVar[str] = "Speech"
    main: ClassVar[tuple[str, ...]] = ("model", "strength")
    uploads: ClassVar[dict[str, str]] = {"recording": "Recording"}
    no_pictures: ClassVar[tuple[str, ...]] = ("recording",)
    samples: ClassVar[dict[str, str]] = {"recording": "speech.wav"}
    formats: ClassVar[tuple[str, ...]] = (".wav", ".flac", ".ogg", ".mp3")

    def show(self) -> None:
        """Add players with their waveforms, and spectrograms."""
        self.players, self.spectra = {}, {}
        for name, label in _PARTS.items():
            self.players[name] = gr.Audio(label=label, interactive=False, type="filepath", elem_id=f"speech-{name}")
            self.spectra[name] = gr.Image(
                label=f"{label}: spectrogram", interactive=False, type="filepath", height=180, buttons=[],
                elem_id=f"speech-spectrum-{name}",
            )  # fmt: skip
        self.residual = gr.DownloadButton(
            "Download what was removed", interactive=False, elem_id="speech-residual-file"
        )

    def shown(self) -> list[Any]:
        """Return what a run changes here."""
        return [*self.players.values(), *self.spectra.values(), self.residual]

    def look_at(self, name: str, path: Path) -> Any:
        """Look at a recording in the quick worker."""
        return self.studio.quick(look_at_sound, path)

    def named_files(self, roles: dict[str, list[str]], target: str) -> dict[str, Any]:
        """Return where to write what was removed."""
        place = Path(target)
        return {"residual": f"{place.stem}_residual{place.suffix}"}

    def finished(self, made: Made) -> Updates:
        """Show a result."""
        updates = super().finished(made)
        updates |= {self.players[name]: str(made.views[name]) for name in _PARTS}
        updates |= {self.spectra[name]: str(made.views[f"spectrum_{name}"]) for name in _PARTS}
        return updates | {self.residual: gr.update(value=str(made.files[0]), interactive=True)}

    def facts(self, made: Made) -> list[str]:
        """Say the noise level."""
        how = "found" if made.facts["sigma_estimated"] else "given"
        return [
            *super().facts(made),
            f"Noise level {made.facts['sigma']:.3g} of full scale ({how}), model {made.facts['model']}.",
        ]
