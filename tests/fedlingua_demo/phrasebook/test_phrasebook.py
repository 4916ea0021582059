"""The phrase grammar: sentences checked by hand, and what its corpora promise."""

import pytest

from fedlingua_demo import phrasebook
from fedlingua_demo.phrasebook import germanic, lexicon, romance, slavic
from fedlingua_demo.phrasebook.abstract import (
    Clause,
    Duty,
    Existence,
    NounPhrase,
    Quality,
    Question,
    Report,
    Request,
    Sentence,
    Statement,
)

FAMILIES = {
    "de": germanic,
    "nl": germanic,
    "sv": germanic,
    "fr": romance,
    "es": romance,
    "it": romance,
    "pl": slavic,
    "cs": slavic,
    "sl": slavic,
}

BICYCLE_BOUGHT = Statement(
    Clause(
        NounPhrase("girl", "this"),
        "buy",
        NounPhrase("bicycle", "my", adjective="red"),
        "past",
        place="city",
    ),
    "yesterday",
)
BOOK_UNREAD = Statement(
    Clause(
        NounPhrase("child", plural=True),
        "read",
        NounPhrase("book", "this", adjective="green"),
        negative=True,
    )
)
BIRDS_UNSEEN = Statement(
    Clause("we", "see", NounPhrase("bird", "this", True, "white"), "past", negative=True),
    "last_week",
)
TREE_TAKEN = Statement(Clause("I", "photograph", NounPhrase("tree", "this"), "past"))
DOG_OBSERVED = Question(
    Clause(
        NounPhrase("friend", "my", adjective="famous"),
        "observe",
        NounPhrase("dog", adjective="tired"),
        "past",
    )
)
CATS_THERE = Existence(NounPhrase("cat", "a", True, "black"), "garden", "past")
WINDOWS_GREEN = Quality(NounPhrase("window", "my", True), "green")
WOMAN_TIRED = Quality(NounPhrase("woman", "this"), "tired", "past", "deny")
PATIENTS_PLEASE = Request("examine", NounPhrase("patient", "the", True, "sick"), "at_hospital")
CHILD_AT_THREE = Duty(
    NounPhrase("doctor"),
    "treat",
    NounPhrase("child", "this", adjective="sick"),
    "clock_3",
)
VERDICT_UNSIGNED = Report(
    NounPhrase("lawyer", "my"),
    Clause(
        NounPhrase("judge", plural=True),
        "sign",
        NounPhrase("verdict", "this"),
        "past",
        negative=True,
    ),
)
CARD_AT_NINE = Statement(
    Clause(NounPhrase("customer", "my"), "block", NounPhrase("card", adjective="foreign")),
    "clock_9",
)

CHECKED: list[tuple[Sentence, dict[str, str]]] = [
    (
        BICYCLE_BOUGHT,
        {
            "de": "Gestern hat dieses Mädchen mein rotes Fahrrad in der Stadt gekauft.",
            "nl": "Gisteren heeft dit meisje mijn rode fiets in de stad gekocht.",
            "sv": "I går köpte den här flickan min röda cykel i staden.",
            "fr": "Hier, cette fille a acheté mon vélo rouge dans la ville.",
            "es": "Ayer esta chica compró mi bicicleta roja en la ciudad.",
            "it": "Ieri questa ragazza ha comprato la mia bicicletta rossa in città.",
            "pl": "Wczoraj ta dziewczyna kupiła mój czerwony rower w mieście.",
            "cs": "Včera tato dívka koupila moje červené kolo ve městě.",
            "sl": "Včeraj je ta deklica kupila moje rdeče kolo v mestu.",
        },
    ),
    (
        BOOK_UNREAD,
        {
            "de": "Die Kinder lesen dieses grüne Buch nicht.",
            "nl": "De kinderen lezen dit groene boek niet.",
            "sv": "Barnen läser inte den här gröna boken.",
            "fr": "Les enfants ne lisent pas ce livre vert.",
            "es": "Los niños no leen este libro verde.",
            "it": "I bambini non leggono questo libro verde.",
            "pl": "Dzieci nie czytają tej zielonej książki.",
            "cs": "Děti nečtou tuto zelenou knihu.",
            "sl": "Otroci ne berejo te zelene knjige.",
        },
    ),
    (
        BIRDS_UNSEEN,
        {
            "de": "Letzte Woche haben wir diese weißen Vögel nicht gesehen.",
            "nl": "Vorige week hebben wij deze witte vogels niet gezien.",
            "sv": "Förra veckan såg vi inte de här vita fåglarna.",
            "fr": "La semaine dernière, nous n'avons pas vu ces oiseaux blancs.",
            "es": "La semana pasada no vimos a estos pájaros blancos.",
            "it": "La settimana scorsa non abbiamo visto questi uccelli bianchi.",
            "pl": "W zeszłym tygodniu nie zobaczyliśmy tych białych ptaków.",
            "cs": "Minulý týden jsme neviděli tyto bílé ptáky.",
            "sl": "Prejšnji teden nismo videli teh belih ptic.",
        },
    ),
    (
        TREE_TAKEN,
        {
            "de": "Ich habe diesen Baum fotografiert.",
            "nl": "Ik heb deze boom gefotografeerd.",
            "sv": "Jag fotograferade det här trädet.",
            "fr": "J'ai photographié cet arbre.",
            "es": "Fotografié este árbol.",
            "it": "Ho fotografato quest'albero.",
            "pl": "Sfotografowałem to drzewo.",
            "cs": "Vyfotografoval jsem tento strom.",
            "sl": "Fotografiral sem to drevo.",
        },
    ),
    (
        DOG_OBSERVED,
        {
            "de": "Hat mein berühmter Freund den müden Hund beobachtet?",
            "nl": "Heeft mijn beroemde vriend de vermoeide hond geobserveerd?",
            "sv": "Observerade min berömda vän den trötta hunden?",
            "fr": "Est-ce que mon ami célèbre a observé le chien fatigué?",
            "es": "¿Observó mi amigo famoso al perro cansado?",
            "it": "Il mio amico famoso ha osservato il cane stanco?",
            "pl": "Czy mój sławny przyjaciel obserwował zmęczonego psa?",
            "cs": "Pozoroval můj slavný přítel unaveného psa?",
            "sl": "Ali je moj slavni prijatelj opazoval utrujenega psa?",
        },
    ),
    (
        CATS_THERE,
        {
            "de": "Im Garten waren schwarze Katzen.",
            "nl": "Er waren zwarte katten in de tuin.",
            "sv": "Det fanns svarta katter i trädgården.",
            "fr": "Il y avait des chats noirs dans le jardin.",
            "es": "Había gatos negros en el jardín.",
            "it": "C'erano gatti neri nel giardino.",
            "pl": "W ogrodzie były czarne koty.",
            "cs": "Na zahradě byly černé kočky.",
            "sl": "Na vrtu so bile črne mačke.",
        },
    ),
    (
        WINDOWS_GREEN,
        {
            "de": "Meine Fenster sind grün.",
            "nl": "Mijn ramen zijn groen.",
            "sv": "Mina fönster är gröna.",
            "fr": "Mes fenêtres sont vertes.",
            "es": "Mis ventanas son verdes.",
            "it": "Le mie finestre sono verdi.",
            "pl": "Moje okna są zielone.",
            "cs": "Moje okna jsou zelená.",
            "sl": "Moja okna so zelena.",
        },
    ),
    (
        WOMAN_TIRED,
        {
            "de": "Diese Frau war nicht müde.",
            "nl": "Deze vrouw was niet vermoeid.",
            "sv": "Den här kvinnan var inte trött.",
            "fr": "Cette femme n'était pas fatiguée.",
            "es": "Esta mujer no estaba cansada.",
            "it": "Questa donna non era stanca.",
            "pl": "Ta kobieta nie była zmęczona.",
            "cs": "Tato žena nebyla unavená.",
            "sl": "Ta ženska ni bila utrujena.",
        },
    ),
    (
        PATIENTS_PLEASE,
        {
            "de": "Bitte untersuchen Sie die kranken Patienten im Krankenhaus.",
            "nl": "Gelieve de zieke patiënten in het ziekenhuis te onderzoeken.",
            "sv": "Vänligen undersök de sjuka patienterna på sjukhuset.",
            "fr": "Veuillez examiner les patients malades à l'hôpital.",
            "es": "Se ruega examinar a los pacientes enfermos en el hospital.",
            "it": "Si prega di esaminare i pazienti malati in ospedale.",
            "pl": "Proszę zbadać chorych pacjentów w szpitalu.",
            "cs": "Prosím, vyšetřete nemocné pacienty v nemocnici.",
            "sl": "Prosimo, preglejte bolne paciente v bolnišnici.",
        },
    ),
    (
        CHILD_AT_THREE,
        {
            "de": "Um drei Uhr muss der Arzt dieses kranke Kind behandeln.",
            "nl": "Om drie uur moet de arts dit zieke kind behandelen.",
            "sv": "Klockan tre måste läkaren behandla det här sjuka barnet.",
            "fr": "À trois heures, le médecin doit soigner cet enfant malade.",
            "es": "A las tres el médico debe tratar a este niño enfermo.",
            "it": "Alle tre il medico deve curare questo bambino malato.",
            "pl": "O trzeciej lekarz musi wyleczyć to chore dziecko.",
            "cs": "Ve tři hodiny musí lékař ošetřit toto nemocné dítě.",
            "sl": "Ob treh mora zdravnik ozdraviti tega bolnega otroka.",
        },
    ),
    (
        VERDICT_UNSIGNED,
        {
            "de": "Mein Anwalt sagt, dass die Richter dieses Urteil nicht unterschrieben haben.",
            "nl": "Mijn advocaat zegt dat de rechters dit vonnis niet hebben ondertekend.",
            "sv": "Min advokat säger att domarna inte undertecknade det här utslaget.",
            "fr": "Mon avocat dit que les juges n'ont pas signé ce jugement.",
            "es": "Mi abogado dice que los jueces no firmaron esta sentencia.",
            "it": "Il mio avvocato dice che i giudici non hanno firmato questa sentenza.",
            "pl": "Mój adwokat mówi, że sędziowie nie podpisali tego wyroku.",
            "cs": "Můj advokát říká, že soudci nepodepsali tento rozsudek.",
            "sl": "Moj odvetnik pravi, da sodniki niso podpisali te sodbe.",
        },
    ),
    (
        CARD_AT_NINE,
        {
            "de": "Um neun Uhr sperrt mein Kunde die ausländische Karte.",
            "nl": "Om negen uur blokkeert mijn klant de buitenlandse kaart.",
            "sv": "Klockan nio spärrar min kund det utländska kortet.",
            "fr": "À neuf heures, mon client bloque la carte étrangère.",
            "es": "A las nueve mi cliente bloquea la tarjeta extranjera.",
            "it": "Alle nove il mio cliente blocca la carta straniera.",
            "pl": "O dziewiątej mój klient blokuje zagraniczną kartę.",
            "cs": "V devět hodin můj zákazník blokuje zahraniční kartu.",
            "sl": "Ob devetih moja stranka blokira tujo kartico.",
        },
    ),
]


@pytest.mark.parametrize("language", phrasebook.LANGUAGES)
def test_sentences_checked_by_hand(language: str) -> None:
    for said, lines in CHECKED:
        assert FAMILIES[language].linearise(language, said) == lines[language]


@pytest.mark.parametrize(
    ("language", "said", "line"),
    [
        ("it", NounPhrase("shelf", plural=True), "Gli scaffali sono moderni."),
        ("it", NounPhrase("shelf"), "Lo scaffale è moderno."),
        ("it", NounPhrase("shelf", "my"), "Il mio scaffale è moderno."),
        ("fr", NounPhrase("shelf"), "L'étagère est moderne."),
        ("fr", NounPhrase("shelf", "my"), "Mon étagère est moderne."),
        ("sv", NounPhrase("shelf", "this"), "Den här hyllan är modern."),
        ("pl", NounPhrase("crate", "my"), "Moja skrzynia jest nowoczesna."),
    ],
)
def test_determiners(language: str, said: NounPhrase, line: str) -> None:
    assert FAMILIES[language].linearise(language, Quality(said, "modern")) == line


def test_same_arguments_same_corpus() -> None:
    assert phrasebook.base_corpus(200, 3) == phrasebook.base_corpus(200, 3)
    assert phrasebook.base_corpus(200, 3) != phrasebook.base_corpus(200, 4)
    assert phrasebook.register_corpus("bank", 200, 3) == phrasebook.register_corpus("bank", 200, 3)


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one() -> None:
    small, large = phrasebook.base_corpus(50, 5), phrasebook.base_corpus(80, 5)
    assert all(large[language][:50] == small[language] for language in phrasebook.LANGUAGES)


def test_no_sentence_comes_twice() -> None:
    corpora = [phrasebook.base_corpus(3000, 1)]
    corpora += [phrasebook.register_corpus(register, 500, 1) for register in phrasebook.REGISTERS]
    for language in phrasebook.LANGUAGES:
        lines = [line for corpus in corpora for line in corpus[language]]
        assert len(lines) == 3000 + 500 * len(phrasebook.REGISTERS)
        assert len(set(lines)) == len(lines)


def test_every_register_has_five_thousand_sentences() -> None:
    corpus = phrasebook.register_corpus("farm", 5000, 2)
    assert set(corpus) == set(phrasebook.LANGUAGES)
    assert {len(set(lines)) for lines in corpus.values()} == {5000}


def test_sentences_are_written_as_sentences() -> None:
    corpus = phrasebook.register_corpus("theatre", 500, 2)
    for lines in corpus.values():
        for line in lines:
            assert line.lstrip("¿")[0].isupper()
            assert line.endswith((".", "?"))
            assert "  " not in line
            assert "_" not in line


def test_no_two_meanings_share_a_form() -> None:
    for language in phrasebook.LANGUAGES:
        owners: dict[str, str] = {}
        for noun, forms in lexicon.words(language, "nouns").items():
            for form in forms[1:]:
                assert owners.setdefault(form, noun) == noun, (language, form)


def test_every_language_says_every_meaning() -> None:
    for language in phrasebook.LANGUAGES:
        for section in ("nouns", "verbs", "adjectives"):
            words = lexicon.words(language, section)
            assert list(words) == list(lexicon.meanings(section)), (language, section)
        for section in ("places", "times"):
            for key in lexicon.meanings(section):
                assert lexicon.phrase(language, section, key)


def test_unknown_register_names_the_choices() -> None:
    with pytest.raises(ValueError, match="got 'airport', wanted one of hospital, court"):
        phrasebook.register_corpus("airport", 1, 1)


@pytest.mark.parametrize("sentences", [-1, 10**9])
def test_impossible_number_of_sentences(sentences: int) -> None:
    with pytest.raises(ValueError, match=f"got {sentences} sentences, wanted 0 to"):
        phrasebook.base_corpus(sentences, 1)


def test_grammar_hash_is_stable() -> None:
    digest = phrasebook.grammar_hash()
    assert digest == phrasebook.grammar_hash()
    assert len(digest) == 64
    int(digest, 16)
