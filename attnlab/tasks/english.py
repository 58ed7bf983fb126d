"""A small part of English as a probabilistic context-free grammar.

Its sentences have relative clauses inside one another ("the dog that the cats that women see chase
barks") and prepositional phrases that may belong to the verb or to the object, so the same words
can have two trees:

    (VP sees (NP the girl) (PP with (NP the lamp)))
    (VP sees (NP (NP the girl) (PP with (NP the lamp))))

Verbs, determiners and nouns agree in number; no label says whether a phrase is singular or plural.
How rules and words are written is told in ``attnlab.tasks.grammar``.
"""

from attnlab.tasks.grammar import Grammar

RULES = """
    S             0.75  NP-who[n] VP[n]
    S             0.25  PP NP-who[n] VP[n]

    NP-who[n]     0.50  Det[n] Being[n]
    NP-who[n]     0.14  Det[n] Adj Being[n]
    NP-who[n]     0.16  NP-being[n] PP
    NP-who[n]     0.16  NP-being[n] SBAR-being[n]
    NP-who[n]     0.04  NP-being[n] PP SBAR-being[n]
    NP-being[n]   0.80  Det[n] Being[n]
    NP-being[n]   0.20  Det[n] Adj Being[n]

    NP-any[n]     0.40  Det[n] Being[n]
    NP-any[n]     0.30  Det[n] Thing[n]
    NP-any[n]     0.06  Det[n] Adj Thing[n]
    NP-any[n]     0.07  NP-being[n] PP
    NP-any[n]     0.07  NP-being[n] SBAR-being[n]
    NP-any[n]     0.06  NP-thing[n] PP
    NP-any[n]     0.04  NP-thing[n] SBAR-thing
    NP-thing[n]   1     Det[n] Thing[n]

    PP            1     P NP-any[m]

    SBAR-being[n] 0.5   that S-subject[n]
    SBAR-being[n] 0.5   that S-object
    SBAR-thing    1     that S-object
    S-subject[n]  1     VP[n]
    S-object      1     NP-who[m] VP-object[m]
    VP-object[n]  1     Transitive[n]

    VP[n]         0.22  Intransitive[n]
    VP[n]         0.10  Intransitive[n] Adv
    VP[n]         0.14  Intransitive[n] PP
    VP[n]         0.32  Transitive[n] NP-any[m]
    VP[n]         0.14  Transitive[n] NP-any[m] PP
    VP[n]         0.08  Saying[n] SBAR-said
    SBAR-said     1     that S
"""

WORDS = """
    Det[n]           the the the this/these every/all my your one/many
    Adj              old young small tall quiet happy brave hungry tired clever kind famous
    Adv              today often loudly quietly again everywhere tonight outside
    P                near behind beside with by
    Being[n]         dog/dogs cat/cats girl/girls boy/boys farmer/farmers teacher/teachers
                     child/children woman/women man/men mouse/mice goose/geese bird/birds
                     fox/foxes horse/horses sailor/sailors doctor/doctors pilot/pilots
                     neighbour/neighbours queen/queens singer/singers baker/bakers wolf/wolves
                     student/students judge/judges
    Thing[n]         house/houses tree/trees lamp/lamps book/books letter/letters box/boxes
                     bench/benches bridge/bridges telescope/telescopes ladder/ladders boat/boats
                     table/tables basket/baskets window/windows garden/gardens wagon/wagons
                     shelf/shelves bicycle/bicycles
    Intransitive[n]  barks/bark sleeps/sleep sings/sing laughs/laugh runs/run waits/wait
                     smiles/smile falls/fall swims/swim dances/dance arrives/arrive coughs/cough
    Transitive[n]    chases/chase sees/see helps/help follows/follow carries/carry likes/like
                     calls/call visits/visit finds/find pushes/push knows/know draws/draw
    Saying[n]        says/say thinks/think hopes/hope believes/believe hears/hear
"""

ENGLISH = Grammar(RULES, WORDS)
