"""Short stories for small children, as many as anybody wants: a grammar and its words.

    python examples/stories/stories.py 5

`train.py` beside it trains a language model on them. A story is a plot whose sentences have
alternatives, `(one|another)`, chosen anew at each place, and slots, `$friend`, chosen once.
"""

import random
import re
import sys

WORDS = {
    "animal": "cat dog fox bear rabbit mouse frog duck owl hen pig lamb pony squirrel turtle "
    "hedgehog",
    "girl": "Mia Lily Anna Rosie Daisy Luna Molly Poppy Ruby Bella",
    "boy": "Ben Tom Max Leo Sam Oscar Finn Jack Toby Milo",
    "colour": "red blue green yellow white brown pink",
    "toy": "ball kite boat drum hat scarf bell book cup star bucket",
    "food": "apples berries nuts carrots cookies pears cherries plums",
}
ANIMALS, GIRLS, BOYS, COLOURS, TOYS, FOODS = (words.split() for words in WORDS.values())
PLACES = {
    "in the forest": "(tall tree|big bush|old log)",
    "on a farm": "(red barn|old well|big gate)",
    "by the river": "(little bridge|big rock|old boat)",
    "in a small town": "(old school|little shop|big fountain)",
    "near the sea": "(white tower|big rock|old boat)",
    "on a green hill": "(tall tree|old mill|stone wall)",
}
GAMES = "(run and jump|sing songs|dance in the rain|play outside|look at the stars|swim|paint)"
KIND = "(kind|brave|happy|clever|gentle|funny|quiet|curious)"
DAY = "(One (sunny|cold|warm|windy|rainy) (day|morning)|One day|Early one morning)"

OPENING = """
    (Once upon a time, there was|Once there was|Long ago, there was) a
    (little|small|young|$kind) $animal named $name. $He lived $place with $his
    (mother|father|mother and father|grandmother|big sister|little brother). $name (loved to
    $game|was very $kind and loved to $game).
"""
MEETING = """
    (Then|Soon|Just then), a (big|$kind2|little) $animal2 named $friend came by. "(Why are you
    sad|What is wrong)?" asked $friend.
"""
ENDING = """
    (From that day on, $name and $friend were (good|best) friends.|$name and $friend
    (played|laughed|sang) together until the sun went down.|That night, $name went to bed with
    a smile.|And they were friends forever.|$name never forgot (that|this) day.)
"""

PLOTS = [
    """
    $day, $name could not find $his $colour $toy. $He looked (under the bed|behind the door|in
    the garden), but it was not there. $name (was very sad|began to cry|sat down and cried).
    @meeting "I lost my $colour $toy," said $name. "(Do not worry|Do not cry). I will help you
    (find it|look for it)," said $friend. They looked and looked. At last, $friend found the
    $colour $toy behind the $thing. $name was so happy that $he (gave $friend a big hug|jumped
    up and down|danced around).
    """,
    """
    $day, $name (went for a walk|was playing outside) and heard a (small|loud|strange) sound.
    "Help! Help!" $name ran to the $thing. There was a little $animal2 named $friend. "My foot
    is stuck," said $friend. $name was (not afraid|very brave). $He (pulled and pulled|pushed
    the stone away|called for help), and (soon|at last) $friend was free. "Thank you," said
    $friend. "You are (very brave|so kind|a good friend)." Then they ate some $food together.
    """,
    """
    $day, $name (found|picked) a basket full of $food near the $thing. $He wanted to eat them
    all. Then $he saw a $animal2 named $friend, who (looked hungry|had nothing to eat|was cold
    and hungry). "(Can I have some|May I have one), please?" asked $friend. $name thought for
    a moment. "Yes, we can share," said $name. They sat down under a tree and ate the $food.
    "It is (more fun|better) to share," said $name.
    """,
    """
    One night, there was a big storm. The wind was loud and the rain fell on the roof. $name
    was (afraid|scared) and could not sleep. "(Are you awake|Can you hear the wind)?" asked
    $friend, a $kind2 $animal2 who lived next door. $friend (brought|came with) a (warm
    blanket|little lamp) and some $food. "(The storm will be over soon|It is only the wind),"
    said $friend. They told (funny|long) stories until the rain stopped. In the morning, the
    sun was shining and there was a rainbow over the $thing.
    """,
    """
    $day, it was the birthday of $friend the $animal2. $name wanted to give $friend a
    (nice|special) gift, but $he had no money. $He thought and thought. Then $name had an
    idea. $He made a $colour $toy out of (paper|wood|old cloth) and put it in a box. "Happy
    birthday!" said $name. $friend opened the box and smiled. "(I love it|This is the best
    gift of all|It is beautiful)," said $friend. They ate cake with $food and had a lot of
    fun.
    """,
    """
    $day, $name saw (a|an old) $animal2 named $friend who could (fly a kite|ride a bike|climb
    very high|make a boat). "I want to do that too," said $name. $He tried, but $he fell down.
    $He tried again and fell (down again|into the mud). $name (was sad|wanted to stop). "Do
    not give up," said $friend. "I will (show you|teach you|help you)." So $name tried one
    more time, and it worked! "I did it!" $he (shouted|said). $friend (clapped|smiled|was very
    proud).
    """,
    """
    $day, $name (wanted|was ready) to go to the $thing, but it began to rain. $name looked out
    of the window and was (sad|bored). "There is nothing to do," $he said. $His friend $friend
    the $animal2 had an idea. They (put on their coats|took a big $colour umbrella) and went
    outside. They jumped in the puddles and got very wet. Then they went home, sat by the fire
    and ate warm $food. "(Rain can be fun|I like the rain now)," said $name.
    """,
    """
    Every night, $name looked at the moon and made a wish. $He wished for a friend. $day,
    there was a knock at the door. It was a $animal2 with a $colour $toy. "Hello, my name is
    $friend. I am new here," said the $animal2. "Do you want to play with me?" "Yes, yes!"
    said $name. They played near the $thing all day. $name was (very happy|so happy), because
    the wish came true.
    """,
]

SLOT = re.compile(r"\$(\w+)")
CHOICE = re.compile(r"\(([^()]*)\)")


def story(rng: random.Random) -> str:
    """Return a story."""
    girl = rng.random() < 0.5
    name, friend = rng.choice(GIRLS if girl else BOYS), rng.choice(GIRLS + BOYS)
    while friend == name:
        friend = rng.choice(GIRLS + BOYS)
    place = rng.choice(list(PLACES))
    animal, animal2 = rng.sample(ANIMALS, 2)
    slots = {
        "name": name,
        "friend": friend,
        "animal": animal,
        "animal2": animal2,
        "place": place,
        "thing": PLACES[place],
        "He": "She" if girl else "He",
        "he": "she" if girl else "he",
        "His": "Her" if girl else "His",
        "his": "her" if girl else "his",
        "day": DAY,
        "game": GAMES,
        "kind": KIND,
        "kind2": KIND,
        "colour": rng.choice(COLOURS),
        "toy": rng.choice(TOYS),
        "food": rng.choice(FOODS),
    }
    slots = {slot: chosen(text, rng) for slot, text in slots.items()}
    plot = rng.choice(PLOTS).replace("@meeting", MEETING)
    text = " ".join([OPENING, plot, ENDING])
    text = chosen(SLOT.sub(lambda found: slots[found[1]], text), rng)
    return re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", " ".join(text.split()))


def chosen(text: str, rng: random.Random) -> str:
    """Return a text with one of each alternatives, from the innermost outwards."""
    while CHOICE.search(text):
        text = CHOICE.sub(lambda found: rng.choice(found[1].split("|")), text)
    return text


if __name__ == "__main__":
    source = random.Random(sys.argv[2] if len(sys.argv) > 2 else 0)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        print(story(source), end="\n\n")
