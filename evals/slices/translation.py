"""Words and small phrases from English into French, Spanish and German.

The words are learnt by heart; what is held out is which are put together, and how it is asked. Gender and the form of
the colour follow from the noun, so a phrase is more than its words.
"""

from __future__ import annotations

import functools
import unicodedata

from evals.slices.checks import plain
from evals.slices.draw import Draw
from evals.slices.item import Question, opened, user

LANGUAGES = ("French", "Spanish", "German")
# English: French, Spanish, German, each with its definite article.
NOUNS = {
    "house": ("la maison", "la casa", "das Haus"), "cat": ("le chat", "el gato", "die Katze"),
    "dog": ("le chien", "el perro", "der Hund"), "book": ("le livre", "el libro", "das Buch"),
    "table": ("la table", "la mesa", "der Tisch"), "door": ("la porte", "la puerta", "die Tür"),
    "car": ("la voiture", "el coche", "das Auto"), "river": ("la rivière", "el río", "der Fluss"),
    "key": ("la clé", "la llave", "der Schlüssel"), "moon": ("la lune", "la luna", "der Mond"),
    "flower": ("la fleur", "la flor", "die Blume"), "city": ("la ville", "la ciudad", "die Stadt"),
    "bread": ("le pain", "el pan", "das Brot"), "milk": ("le lait", "la leche", "die Milch"),
    "horse": ("le cheval", "el caballo", "das Pferd"), "chair": ("la chaise", "la silla", "der Stuhl"),
    "window": ("la fenêtre", "la ventana", "das Fenster"), "street": ("la rue", "la calle", "die Straße"),
    "garden": ("le jardin", "el jardín", "der Garten"), "hat": ("le chapeau", "el sombrero", "der Hut"),
}  # fmt: skip
# English: French masculine and feminine, Spanish masculine and feminine, German before a noun with its article.
COLOURS = {
    "red": ("rouge", "rouge", "rojo", "roja", "rote"), "blue": ("bleu", "bleue", "azul", "azul", "blaue"),
    "green": ("vert", "verte", "verde", "verde", "grüne"), "black": ("noir", "noire", "negro", "negra", "schwarze"),
    "white": ("blanc", "blanche", "blanco", "blanca", "weiße"),
    "yellow": ("jaune", "jaune", "amarillo", "amarilla", "gelbe"),
    "brown": ("brun", "brune", "marrón", "marrón", "braune"),
}  # fmt: skip
WORDS = {
    "one": ("un", "uno", "eins"), "two": ("deux", "dos", "zwei"), "three": ("trois", "tres", "drei"),
    "four": ("quatre", "cuatro", "vier"), "five": ("cinq", "cinco", "fünf"), "six": ("six", "seis", "sechs"),
    "seven": ("sept", "siete", "sieben"), "eight": ("huit", "ocho", "acht"), "nine": ("neuf", "nueve", "neun"),
    "ten": ("dix", "diez", "zehn"), "hello": ("bonjour", "hola", "hallo"), "thank you": ("merci", "gracias", "danke"),
    "yes": ("oui", "sí", "ja"), "no": ("non", "no", "nein"), "goodbye": ("au revoir", "adiós", "auf Wiedersehen"),
    "good night": ("bonne nuit", "buenas noches", "gute Nacht"), "please": ("s'il vous plaît", "por favor", "bitte"),
    "today": ("aujourd'hui", "hoy", "heute"), "tomorrow": ("demain", "mañana", "morgen"),
    "red": ("rouge", "rojo", "rot"), "blue": ("bleu", "azul", "blau"), "green": ("vert", "verde", "grün"),
    "black": ("noir", "negro", "schwarz"), "white": ("blanc", "blanco", "weiß"),
    "yellow": ("jaune", "amarillo", "gelb"),
}  # fmt: skip
_OPENERS = ("", "Please, ", "Hi, ", "Now, ", "Tell me, ", "One more: ")
_ASK = (
    "translate {x} to {y}.", "translate {x} into {y}.", "say {x} in {y}.", 'translate "{x}" to {y}.',
    "write {x} in {y}.", "what is {x} in {y}?", "how do you say {x} in {y}?", 'what is "{x}" in {y}?',
    "what does {x} mean in {y}?", "give me the {y} for {x}.",
)  # fmt: skip


def make(draw: Draw) -> Question:
    """A word, a noun with its article, or a noun with a colour; half of them the last."""
    kind = draw.one(("word", "noun", "coloured", "coloured"))
    if kind == "coloured":
        noun, colour, language = draw.phrase("translation:coloured", tuple(NOUNS), tuple(COLOURS), LANGUAGES)
        opener, core = draw.phrase("translation:ask", _OPENERS, _ASK)
        english, foreign = f"the {colour} {noun}", _coloured(noun, colour, language)
    else:
        known = {f"the {noun}": forms for noun, forms in NOUNS.items()} if kind == "noun" else WORDS
        opener, core, english, language = draw.phrase(f"translation:{kind}", _OPENERS, _ASK, tuple(known), LANGUAGES)
        foreign = known[english][LANGUAGES.index(language)]
    text = core.format(x=english, y=language)
    return Question(
        messages=(user(opened(opener, text)),),
        reference=foreign,
        check=functools.partial(is_right, foreign),
        max_tokens=40,
        cluster=english,
    )


def is_right(wanted: str, answer: str) -> bool:
    """Whether the answer is the translation; case and closing marks are let pass, accents and spelling not."""
    given = plain(unicodedata.normalize("NFC", answer.strip("¡¿ "))).replace("’", "'")
    return given == plain(wanted)


def _coloured(noun: str, colour: str, language: str) -> str:
    forms = COLOURS[colour]
    article, _, word = NOUNS[noun][LANGUAGES.index(language)].partition(" ")
    if language == "German":
        return f"{article} {forms[4]} {word}"
    feminine = article == "la"
    return f"{article} {word} {forms[LANGUAGES.index(language) * 2 + feminine]}"
